"""Checks passwords against bcrypt hashes, one at a time, scheduled so that a flood of guesses locks nobody out.

The queue is round robin over client addresses, then over the users of an address, then first in, first out. An attacker
delays only those who log in with the same name from the same address.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import secrets
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum, auto

import bcrypt

Ticket = asyncio.Future[bool]


class FairLock:
    """A lock with a bounded queue, round robin over those who wait. Used on the server's event loop."""

    def __init__(self, most_waiting: int) -> None:
        self._most_waiting = most_waiting
        self._locked = False
        # By address and user, next first.
        self._waiting: dict[str, dict[str, deque[Ticket]]] = {}

    async def acquire(self, address: str, user: str) -> bool:
        """Acquire the lock; returns False when too many wait, possibly after waiting."""
        if not self._locked:
            self._locked = True
            return True
        ticket: Ticket = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, {}).setdefault(user, deque()).append(ticket)
        if self._count() > self._most_waiting:
            self._drop_one()
        try:
            return await ticket
        except asyncio.CancelledError:
            if ticket.cancelled():
                self._remove(address, user, ticket)
            elif ticket.result():
                self.release()
            raise

    def release(self) -> None:
        """Release the lock to the next in the queue."""
        if not self._waiting:
            self._locked = False
            return
        address = next(iter(self._waiting))
        user = next(iter(self._waiting[address]))
        ticket = self._waiting[address][user][0]
        self._remove(address, user, ticket)
        # The address and the user served go to the end.
        if address in self._waiting:
            users = self._waiting[address] = self._waiting.pop(address)
            if user in users:
                users[user] = users.pop(user)
        ticket.set_result(True)

    def _drop_one(self) -> None:
        """Drop the newest entry of the longest queue, by address and then by user."""
        address, users = max(self._waiting.items(), key=lambda one: sum(map(len, one[1].values())))
        user, tickets = max(users.items(), key=lambda one: len(one[1]))
        latest = tickets[-1]
        self._remove(address, user, latest)
        latest.set_result(False)

    def _count(self) -> int:
        return sum(len(tickets) for users in self._waiting.values() for tickets in users.values())

    def _remove(self, address: str, user: str, ticket: Ticket) -> None:
        users = self._waiting[address]
        users[user].remove(ticket)
        if not users[user]:
            del users[user]
        if not users:
            del self._waiting[address]


_MOST_KNOWN = 256
_BCRYPT_BYTES = 72
"""bcrypt uses no more of a password. Go's implementation truncates silently, so this one does too."""
_MOST_HEADER = 4096


class LoginResult(Enum):
    """The result of a login."""

    RIGHT = auto()
    WRONG = auto()
    BUSY = auto()
    """Too many logins are queued; the password was not checked."""


class Passwords:
    """Checks credentials on the server's event loop; hashing runs on another thread."""

    def __init__(self, run: Callable[[Callable[[], bool]], Awaitable[bool]], most_waiting: int) -> None:
        """`run` runs work on another thread."""
        self._run = run
        self._lock = FairLock(most_waiting)
        self._key = secrets.token_bytes(32)
        # Correct passwords only, or wrong ones would evict them. Keyed, so that memory holds no password.
        self._known: OrderedDict[bytes, None] = OrderedDict()

    async def check(self, authorization: str, users: Mapping[str, str], client: str) -> LoginResult:
        """Check an Authorization header against the users' hashes; `client` is the client's address."""
        credentials = credentials_in(authorization)
        if credentials is None:
            return LoginResult.WRONG
        name, password = credentials
        hashed = users.get(name)
        # An unknown name is checked against another user's hash, always the same, so that timing reveals nothing.
        against = self._decoy(name, users) if hashed is None else hashed
        digest = self._digest(name, against, password)
        if hashed is not None and digest in self._known:
            self._known.move_to_end(digest)
            return LoginResult.RIGHT
        if not await self._lock.acquire(client, name):
            return LoginResult.BUSY
        try:
            matches = await self._run(lambda: _matches(password, against))
        finally:
            self._lock.release()
        if not matches or hashed is None:
            return LoginResult.WRONG
        self._known[digest] = None
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        return LoginResult.RIGHT

    def _decoy(self, name: str, users: Mapping[str, str]) -> str:
        hashes = sorted(users.values())
        return hashes[int.from_bytes(self._digest(name, "", b"")[:8], "big") % len(hashes)]

    def _digest(self, name: str, hashed: str, password: bytes) -> bytes:
        parts = (name.encode(), hashed.encode(), password)
        return hmac.digest(self._key, b"".join(hashlib.sha256(part).digest() for part in parts), "sha256")


def credentials_in(authorization: str) -> tuple[str, bytes] | None:
    """Return the name and password of a basic authentication header; None when it is not one."""
    scheme, _, rest = authorization.strip().partition(" ")
    if scheme.lower() != "basic" or len(rest) > _MOST_HEADER:
        return None
    try:
        name, colon, password = base64.b64decode(rest.strip(), validate=True).partition(b":")
        return (name.decode(), password) if colon else None
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None


def _matches(password: bytes, hashed: str) -> bool:
    try:
        return bcrypt.checkpw(password[:_BCRYPT_BYTES], hashed.encode())
    except ValueError:
        return False
