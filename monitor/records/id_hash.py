"""Keyed 64-bit hashes of record ids, to recognise repeated ids without storing them.

Keyed, because an id may be a patient number, and a plain hash of those can be reversed by trying all. SipHash-2-4, because
it is made for short inputs, and numpy can compute it for thousands of ids at once. Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012.
"""

from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from monitor.core.recent_ids import NO_ID, Hashes

KEY_BYTES = 16

LONGEST = 256
"""Ids up to this many UTF-8 bytes use SipHash, longer ones keyed blake2b."""

# Fits in the CPU cache, and bounds memory together with LONGEST.
_TOGETHER = 1 << 12

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


def _hash_some(ids: Sequence[str], key: bytes) -> Hashes:
    lengths = _lengths(ids)
    if lengths.max(initial=0) > LONGEST:
        return _hash_apart(ids, key)
    text = "".join(ids)
    if text.isascii():
        # The usual case: one byte per character, encoded at once.
        return _siphash(text.encode(), lengths, key)
    encoded = [one.encode("utf-8", "surrogatepass") for one in ids]
    lengths = _lengths(encoded)
    if lengths.max() > LONGEST:
        return _hash_apart(ids, key)
    return _siphash(b"".join(encoded), lengths, key)


def _hash_apart(ids: Sequence[str], key: bytes) -> Hashes:
    """Return the hashes of ids, some of which are long."""
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
    hashes[places] = _siphash(b"".join(short), _lengths(short), key)
    return hashes


def _lengths(texts: Sequence[str] | Sequence[bytes]) -> _Integers:
    return np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))


def _siphash(joined: bytes, lengths: _Integers, key: bytes) -> Hashes:
    """Return the SipHash-2-4 of each of some concatenated texts."""
    # Longest first, so that the texts still active are always the first ones.
    words_before_last = (lengths >> 3).astype(np.uint8)
    order = np.argsort(_MOST_WORDS - words_before_last, kind="stable")
    sizes, starts = lengths[order], (np.cumsum(lengths) - lengths)[order]
    # The number of active texts at each step; those between two steps' numbers end there.
    having = len(lengths) - np.cumsum(np.bincount(words_before_last, minlength=1)[:-1], dtype=np.int64)
    words = _words_anywhere(joined)
    state = _State(len(lengths), key)
    for step, (active, going_on) in enumerate(pairwise([len(lengths), *having.tolist(), 0])):
        message = words[starts[:active] + 8 * step].astype(np.uint64, copy=False)
        # The last word: the remaining 0 to 7 bytes, and the length in its top byte.
        ending = sizes[going_on:active]
        message[going_on:] &= _MASKS[ending & 7]
        message[going_on:] |= ending.astype(np.uint64) << np.uint64(56)
        state.compress(message)
    hashes = np.empty(len(lengths), dtype=np.uint64)
    hashes[order] = state.finish()
    return hashes


def _words_anywhere(joined: bytes) -> Hashes:
    """Return a view of the little-endian words that start at each byte, and at the end."""
    padded = joined + bytes(8)
    return np.ndarray((len(joined) + 1,), dtype="<u8", buffer=padded, strides=(1,))


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
            a += b
            _rotate(b, 13, spare)
            b ^= a
            _rotate(a, 32, spare)
            c += d
            _rotate(d, 16, spare)
            d ^= c
            a += d
            _rotate(d, 21, spare)
            d ^= a
            c += b
            _rotate(b, 17, spare)
            b ^= c
            _rotate(c, 32, spare)


def _rotate(words: Hashes, bits: int, spare: Hashes) -> None:
    np.left_shift(words, np.uint64(bits), out=spare)
    np.right_shift(words, np.uint64(64 - bits), out=words)
    np.bitwise_or(words, spare, out=words)
