"""Keyed 64-bit hashes of record ids, to recognise repeated ids without storing them.

Keyed, because an id may be a patient number, and a plain hash of those can be reversed by trying all. SipHash-2-4, because
it is made for short inputs, and numpy can compute it for thousands of ids at once. Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012.
"""

from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise

import numpy as np
from numpy import add, left_shift, right_shift
from numpy import bitwise_or as either
from numpy import bitwise_xor as xor
from numpy.typing import NDArray

from monitor.core.recent_ids import NO_ID, Hashes
from monitor.records.vectors import numbers_at

KEY_BYTES = 16

LONGEST = 256
"""Ids up to this many UTF-8 bytes use SipHash, longer ones keyed blake2b."""

# Bounds memory together with LONGEST. Each step costs some microseconds, however few the ids.
_TOGETHER = 1 << 13

_MOST_WORDS = np.uint8(LONGEST >> 3)

# For fewer, plain Python is faster than numpy.
_FEW = 16
_WORD = (1 << 64) - 1

_Integers = NDArray[np.int64]

# Keeps the first 0 to 7 bytes of a little-endian word.
_MASKS = np.array([(1 << 8 * count) - 1 for count in range(8)], dtype=np.uint64)


def hash_ids(ids: Sequence[str], key: bytes) -> Hashes:
    """Return the hash of each id under a key of 16 bytes; never NO_ID.

    SipHash-2-4 of the UTF-8 bytes, or keyed blake2b of 8 bytes, little-endian, if there are more than LONGEST. Lone
    surrogates are encoded like characters.
    """
    if len(key) != KEY_BYTES:
        raise ValueError(f"key: expected {KEY_BYTES} bytes, found {len(key)}")
    hashes = np.empty(len(ids), dtype=np.uint64)
    if len(ids) <= _FEW:
        hashes[:] = [_hash_one(one, key) for one in ids]
        return hashes
    for start in range(0, len(ids), _TOGETHER):
        some = ids[start : start + _TOGETHER]
        hashes[start : start + len(some)] = _hash_some(some, key)
    hashes[hashes == NO_ID] = 1
    return hashes


def _hash_one(text: str, key: bytes) -> int:
    """Return the hash of one id, without numpy."""
    encoded = text.encode("utf-8", "surrogatepass")
    if len(encoded) > LONGEST:
        return _long_hash(encoded, key) or 1
    a, b, c, d = _starts(key)
    words = len(encoded) >> 3
    padded = encoded + bytes(7 - (len(encoded) & 7)) + bytes([len(encoded) & 0xFF])
    for place in range(0, 8 * words + 8, 8):
        word = int.from_bytes(padded[place : place + 8], "little")
        a, b, c, d = _stirred(a, b, c, d ^ word, rounds=2)
        a ^= word
    a, b, c, d = _stirred(a, b, c ^ 0xFF, d, rounds=4)
    return a ^ b ^ c ^ d or 1


def _stirred(a: int, b: int, c: int, d: int, rounds: int) -> tuple[int, int, int, int]:
    for _ in range(rounds):
        a = (a + b) & _WORD
        b = ((b << 13 | b >> 51) & _WORD) ^ a
        a = (a << 32 | a >> 32) & _WORD
        c = (c + d) & _WORD
        d = ((d << 16 | d >> 48) & _WORD) ^ c
        a = (a + d) & _WORD
        d = ((d << 21 | d >> 43) & _WORD) ^ a
        c = (c + b) & _WORD
        b = ((b << 17 | b >> 47) & _WORD) ^ c
        c = (c << 32 | c >> 32) & _WORD
    return a, b, c, d


def _starts(key: bytes) -> tuple[int, int, int, int]:
    low, high = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    # "somepseudorandomlygeneratedbytes", from the paper.
    return low ^ 0x736F6D6570736575, high ^ 0x646F72616E646F6D, low ^ 0x6C7967656E657261, high ^ 0x7465646279746573


def _long_hash(encoded: bytes, key: bytes) -> int:
    return int.from_bytes(blake2b(encoded, digest_size=8, key=key).digest(), "little")


def hash_texts(joined: bytes | bytearray, starts: _Integers, lengths: _Integers, key: bytes) -> Hashes:
    """Return the hash of each UTF-8 text at these places of a buffer, of at most LONGEST bytes; never NO_ID.

    The buffer has at least eight bytes after each text.
    """
    hashes = np.empty(len(starts), dtype=np.uint64)
    for first in range(0, len(starts), _TOGETHER):
        some = slice(first, first + _TOGETHER)
        hashes[some] = _siphash(joined, starts[some], lengths[some], key)
    hashes[hashes == NO_ID] = 1
    return hashes


def _hash_some(ids: Sequence[str], key: bytes) -> Hashes:
    lengths = _lengths(ids)
    if lengths.max(initial=0) <= LONGEST and (text := "".join(ids)).isascii():
        # The usual case: one byte per character, encoded at once.
        return _hash_joined(text.encode(), lengths, key)
    return _hash_apart(ids, key)


def _hash_apart(ids: Sequence[str], key: bytes) -> Hashes:
    """Return the hashes of ids, some of which may be long or not ASCII."""
    hashes = np.empty(len(ids), dtype=np.uint64)
    short: list[bytes] = []
    places: list[int] = []
    for place, one in enumerate(ids):
        encoded = one.encode("utf-8", "surrogatepass")
        if len(encoded) > LONGEST:
            # One at a time: each may have a mebibyte.
            hashes[place] = _long_hash(encoded, key)
        else:
            short.append(encoded)
            places.append(place)
    hashes[places] = _hash_joined(b"".join(short), _lengths(short), key)
    return hashes


def _lengths(texts: Sequence[str] | Sequence[bytes]) -> _Integers:
    return np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))


def _hash_joined(joined: bytes, lengths: _Integers, key: bytes) -> Hashes:
    return _siphash(joined + bytes(8), np.cumsum(lengths) - lengths, lengths, key)


def _siphash(joined: bytes | bytearray, starts: _Integers, lengths: _Integers, key: bytes) -> Hashes:
    """Return the SipHash-2-4 of each of some texts in a buffer."""
    words_before_last = (lengths >> 3).astype(np.uint8)
    order = None
    if len(lengths) and (words_before_last != words_before_last[0]).any():
        # Longest first, so that the texts still active are always the first ones.
        order = np.argsort(_MOST_WORDS - words_before_last, kind="stable")
        starts, lengths = starts[order], lengths[order]
    # The number of active texts at each step; those between two steps' numbers end there.
    having = len(lengths) - np.cumsum(np.bincount(words_before_last, minlength=1)[:-1], dtype=np.int64)
    state = _State(len(lengths), key)
    for step, (active, going_on) in enumerate(pairwise([len(lengths), *having.tolist(), 0])):
        message = numbers_at(joined, starts[:active] + 8 * step, "<u8").astype(np.uint64)
        # The last word: the remaining 0 to 7 bytes, and the length in its top byte.
        ending = lengths[going_on:active]
        message[going_on:] &= _MASKS[ending & 7]
        message[going_on:] |= ending.astype(np.uint64) << np.uint64(56)
        state.compress(message)
    if order is None:
        return state.finish()
    hashes = np.empty(len(lengths), dtype=np.uint64)
    hashes[order] = state.finish()
    return hashes


class _State:
    """The SipHash state of many texts."""

    def __init__(self, texts: int, key: bytes) -> None:
        self._words = list(np.repeat(np.array(_starts(key), dtype=np.uint64), texts).reshape(4, texts))
        self._spare = np.empty(texts, dtype=np.uint64)

    def compress(self, message: Hashes) -> None:
        """Add one word of each of the first texts."""
        some = [word[: len(message)] for word in self._words]
        some[3] ^= message
        self._stir(some, rounds=2)
        some[0] ^= message

    def finish(self) -> Hashes:
        """Return the hashes of all."""
        a, b, c, d = self._words
        c ^= np.uint64(0xFF)
        self._stir(self._words, rounds=4)
        return a ^ b ^ c ^ d

    def _stir(self, words: list[Hashes], rounds: int) -> None:
        a, b, c, d = words
        spare = self._spare[: len(a)]
        for _ in range(rounds):
            add(a, b, a)
            _rotate(b, _BY_13, spare)
            xor(b, a, b)
            _rotate(a, _BY_32, spare)
            add(c, d, c)
            _rotate(d, _BY_16, spare)
            xor(d, c, d)
            add(a, d, a)
            _rotate(d, _BY_21, spare)
            xor(d, a, d)
            add(c, b, c)
            _rotate(b, _BY_17, spare)
            xor(b, c, b)
            _rotate(c, _BY_32, spare)


_Turn = tuple[NDArray[np.uint64], NDArray[np.uint64]]


def _turn(bits: int) -> _Turn:
    # Arrays, which numpy need not convert for each call, as it does numbers.
    return np.array(bits, dtype=np.uint64), np.array(64 - bits, dtype=np.uint64)


_BY_13, _BY_16, _BY_17, _BY_21, _BY_32 = map(_turn, (13, 16, 17, 21, 32))


def _rotate(words: Hashes, turn: _Turn, spare: Hashes) -> None:
    left_shift(words, turn[0], spare)
    right_shift(words, turn[1], words)
    either(words, spare, words)
