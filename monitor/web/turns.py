"""Turns at something that only one may do at a time, under a flood of wishes.

Clients take turns, so one that floods holds up nobody but itself. Of one client the latest wish comes first: who floods
has as many waiting as it can, and sends the next after an answer. Somebody else at the same address, behind one proxy,
asks in between, is the latest then, and waits for one turn instead of for all that wait.
"""

import asyncio


class Turns:
    """One turn at a time, round robin over the clients that wait. Lives on the server's loop."""

    def __init__(self, most_waiting: int) -> None:
        self._most_waiting = most_waiting
        self._taken = False
        # The client whose turn is next comes first.
        self._waiting: dict[str, list[asyncio.Future[bool]]] = {}

    async def take(self, client: str) -> bool:
        """Wait for a turn, which the caller gives back; False when too many others came meanwhile."""
        if not self._taken:
            self._taken = True
            return True
        if sum(map(len, self._waiting.values())) >= self._most_waiting:
            self._send_one_away()
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, []).append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._remove(client, turn)
            elif turn.result():
                self.give_back()
            raise

    def give_back(self) -> None:
        """End a turn; the next one begins."""
        if not self._waiting:
            self._taken = False
            return
        client = next(iter(self._waiting))
        turns = self._waiting.pop(client)
        turns.pop().set_result(True)
        if turns:
            self._waiting[client] = turns

    def _send_one_away(self) -> None:
        """End the longest wait of the client with the most that wait."""
        client, turns = max(self._waiting.items(), key=lambda one: len(one[1]))
        longest = turns[0]
        self._remove(client, longest)
        longest.set_result(False)

    def _remove(self, client: str, turn: asyncio.Future[bool]) -> None:
        self._waiting[client].remove(turn)
        if not self._waiting[client]:
            del self._waiting[client]
