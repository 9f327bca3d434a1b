"""Passwords against bcrypt hashes, one check at a time; clients take turns, so a flood of guesses locks nobody out.

Addresses take turns, the users of one address do too, and wishes of one user come in their order. So whoever guesses a
password holds up those who give the same name from the same address, and nobody else.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
from collections import OrderedDict, deque
from collections.abc import Mapping
from enum import Enum, auto

import bcrypt

from monitor.web.server.workers import Workers

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


_MOST_KNOWN = 256
_BCRYPT_BYTES = 72
"""bcrypt looks at no more of a password; Go's, which made many of the hashes, cuts there without a word."""
_MOST_HEADER = 4096


class LoginResult(Enum):
    """What became of a check."""

    RIGHT = auto()
    WRONG = auto()
    BUSY = auto()
    """Too many wait already; nothing was checked."""


class Passwords:
    """Checks credentials. Lives on the server's loop; only the hashing itself runs on another thread."""

    def __init__(self, workers: Workers, most_waiting: int) -> None:
        self._workers = workers
        self._turns = Turns(most_waiting)
        self._key = secrets.token_bytes(32)
        # Right ones only: wrong ones would let anybody push them out. Keyed, so that memory holds no password.
        self._known: OrderedDict[bytes, None] = OrderedDict()

    async def check(self, authorization: str, users: Mapping[str, str], client: str) -> LoginResult:
        """Judge an Authorization header by the users' hashes; `client` is whose address it came from."""
        credentials = credentials_in(authorization)
        if credentials is None:
            return LoginResult.WRONG
        name, password = credentials
        hashed = users.get(name)
        # For a name that nobody has, another's hash is computed, always the same one: the time taken tells nothing.
        against = self._stand_in(name, users) if hashed is None else hashed
        seal = self._seal(name, against, password)
        if hashed is not None and seal in self._known:
            self._known.move_to_end(seal)
            return LoginResult.RIGHT
        if not await self._turns.take(client, name):
            return LoginResult.BUSY
        try:
            fits = await self._workers.run(lambda: _fits(password, against))
        finally:
            self._turns.give_back()
        if not fits or hashed is None:
            return LoginResult.WRONG
        self._known[seal] = None
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        return LoginResult.RIGHT

    def _stand_in(self, name: str, users: Mapping[str, str]) -> str:
        hashes = sorted(users.values())
        return hashes[int.from_bytes(self._seal(name, "", b"")[:8], "big") % len(hashes)]

    def _seal(self, name: str, hashed: str, password: bytes) -> bytes:
        parts = (name.encode(), hashed.encode(), password)
        return hmac.digest(self._key, b"".join(hashlib.sha256(part).digest() for part in parts), "sha256")


def credentials_in(authorization: str) -> tuple[str, bytes] | None:
    """Return the name and password of a header for basic authentication; None when it holds none."""
    scheme, _, rest = authorization.strip().partition(" ")
    if scheme.lower() != "basic" or len(rest) > _MOST_HEADER:
        return None
    try:
        name, colon, password = base64.b64decode(rest.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None


def _fits(password: bytes, hashed: str) -> bool:
    try:
        return bcrypt.checkpw(password[:_BCRYPT_BYTES], hashed.encode())
    except ValueError:
        return False
