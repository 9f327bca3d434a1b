"""Turns at something that only one may do at a time, under a flood of wishes.

Addresses take turns, the users of one address do too, and wishes of one user come in their order. So whoever guesses a
password holds up those who give the same name from the same address, and nobody else.
"""

import asyncio
from collections import deque

Turn = asyncio.Future[bool]


class Turns:
    """One turn at a time, round robin over those who wait. Lives on the server's loop."""

    def __init__(self, most_waiting: int) -> None:
        self._most_waiting = most_waiting
        self._taken = False
        # By address and user; those whose turn is next come first.
        self._waiting: dict[str, dict[str, deque[Turn]]] = {}

    async def take(self, address: str, user: str) -> bool:
        """Wait for a turn, which the caller gives back; False when too many wait, which may turn out while waiting."""
        if not self._taken:
            self._taken = True
            return True
        turn: Turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, {}).setdefault(user, deque()).append(turn)
        if self._count() > self._most_waiting:
            self._send_one_away()
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._remove(address, user, turn)
            elif turn.result():
                self.give_back()
            raise

    def give_back(self) -> None:
        """End a turn; the next one begins."""
        if not self._waiting:
            self._taken = False
            return
        address = next(iter(self._waiting))
        user = next(iter(self._waiting[address]))
        turn = self._waiting[address][user][0]
        self._remove(address, user, turn)
        # Whoever was served goes behind the others.
        if address in self._waiting:
            users = self._waiting[address] = self._waiting.pop(address)
            if user in users:
                users[user] = users.pop(user)
        turn.set_result(True)

    def _send_one_away(self) -> None:
        """End the latest wait of the user with the most that wait, at the address with the most."""
        address, users = max(self._waiting.items(), key=lambda one: sum(map(len, one[1].values())))
        user, turns = max(users.items(), key=lambda one: len(one[1]))
        latest = turns[-1]
        self._remove(address, user, latest)
        latest.set_result(False)

    def _count(self) -> int:
        return sum(len(turns) for users in self._waiting.values() for turns in users.values())

    def _remove(self, address: str, user: str, turn: Turn) -> None:
        users = self._waiting[address]
        users[user].remove(turn)
        if not users[user]:
            del users[user]
        if not users:
            del self._waiting[address]
