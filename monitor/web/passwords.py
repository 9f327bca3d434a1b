"""Names and passwords of clients, against bcrypt hashes: one at a time, and not again for one that was right."""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from enum import Enum, auto

import bcrypt

from monitor.web.turns import Turns
from monitor.web.workers import Workers

_MOST_KNOWN = 256
_BCRYPT_BYTES = 72
"""bcrypt looks at no more of a password; Go's, which made many of the hashes, cuts there without a word."""
_MOST_HEADER = 4096


class Verdict(Enum):
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

    async def check(self, authorization: str, users: Mapping[str, str], client: str) -> Verdict:
        """Judge an Authorization header by the users' hashes; `client` is whose address it came from."""
        credentials = credentials_in(authorization)
        if credentials is None:
            return Verdict.WRONG
        name, password = credentials
        hashed = users.get(name)
        # For a name that nobody has, another's hash is computed, always the same one: the time taken tells nothing.
        against = self._stand_in(name, users) if hashed is None else hashed
        seal = self._seal(name, against, password)
        if hashed is not None and seal in self._known:
            self._known.move_to_end(seal)
            return Verdict.RIGHT
        if not await self._turns.take(client, name):
            return Verdict.BUSY
        try:
            fits = await self._workers.run(lambda: _fits(password, against))
        finally:
            self._turns.give_back()
        if not fits or hashed is None:
            return Verdict.WRONG
        self._known[seal] = None
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        return Verdict.RIGHT

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
