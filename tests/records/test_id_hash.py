"""Keyed hashes of ids against a plain SipHash-2-4, one id at a time."""

import tracemalloc
from hashlib import blake2b

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from monitor.records import id_hash
from monitor.records.id_hash import LONGEST, hash_ids

KEY = bytes(range(16))

_WORD = (1 << 64) - 1


def rotated(word: int, bits: int) -> int:
    """Rotate to the left."""
    return (word << bits | word >> (64 - bits)) & _WORD


def stirred(state: list[int], rounds: int) -> list[int]:
    """Apply SipRound, line by line as in the paper."""
    v0, v1, v2, v3 = state
    for _ in range(rounds):
        v0, v2 = (v0 + v1) & _WORD, (v2 + v3) & _WORD
        v1, v3 = rotated(v1, 13) ^ v0, rotated(v3, 16) ^ v2
        v0 = rotated(v0, 32)
        v2, v0 = (v2 + v1) & _WORD, (v0 + v3) & _WORD
        v1, v3 = rotated(v1, 17) ^ v2, rotated(v3, 21) ^ v0
        v2 = rotated(v2, 32)
    return [v0, v1, v2, v3]


def siphash(data: bytes, key: bytes) -> int:
    """SipHash-2-4 of one text."""
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    state = [k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D, k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573]
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for start in range(0, len(padded), 8):
        word = int.from_bytes(padded[start : start + 8], "little")
        state[3] ^= word
        state = stirred(state, 2)
        state[0] ^= word
    state[2] ^= 0xFF
    state = stirred(state, 4)
    return state[0] ^ state[1] ^ state[2] ^ state[3]


def expected(text: str, key: bytes) -> int:
    """Return the hashes documented by `hash_ids`."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= LONGEST:
        found = siphash(data, key)
    else:
        found = int.from_bytes(blake2b(data, digest_size=8, key=key).digest(), "little")
    return found or 1


def text_of(count: int) -> str:
    """Return the official input of this length: 00 01 02 …, ASCII up to 7f."""
    return "".join(map(chr, range(count)))


# The first sixteen of vectors_sip64 in the reference implementation, as numbers.
OFFICIAL = [
    0x726FDB47DD0E0E31, 0x74F839C593DC67FD, 0x0D6C8009D9A94F5A, 0x85676696D7FB7E2D,
    0xCF2794E0277187B7, 0x18765564CD99A68D, 0xCBC9466E58FEE3CE, 0xAB0200F58B01D137,
    0x93F5F5799A932462, 0x9E0082DF0BA9E4B0, 0x7A5DBBC594DDB9F3, 0xF4B32F46226BADA7,
    0x751E8FBC860EE5FB, 0x14EA5627C0843D90, 0xF723CA908E7AF2EE, 0xA129CA6149BE45E5,
]  # fmt: skip


def test_the_official_vectors() -> None:
    """For the implementation here and the one under test."""
    assert [siphash(text_of(count).encode(), KEY) for count in range(16)] == OFFICIAL
    assert hash_ids([text_of(count) for count in range(16)], KEY).tolist() == OFFICIAL
    assert hash_ids([text_of(count) for count in range(16)] * 2, KEY).tolist() == OFFICIAL * 2


def test_hashes_do_not_depend_on_other_ids() -> None:
    """For every length up to beyond the longest, in any order."""
    texts = [text_of(count % 128) + "x" * (count - count % 128) for count in range(LONGEST + 20)]
    together = hash_ids(texts, KEY)
    assert together.tolist() == [expected(text, KEY) for text in texts]
    assert hash_ids(texts[::-1], KEY).tolist() == together.tolist()[::-1]
    assert [int(hash_ids([text], KEY)[0]) for text in texts] == together.tolist()


@given(st.lists(st.text(st.characters(codec=None))), st.binary(min_size=16, max_size=16))
@example(["\ud800", "\udfff\ud800", "\U0010ffff", "é", ""], KEY)
@example(["é" * (LONGEST // 2), "é" * (LONGEST // 2) + "x", "x" * LONGEST, "x" * (LONGEST + 1), "a"], KEY)
@example(["x" * (1 << 20), "a", "b" * 17], KEY)
def test_equals_the_plain_implementation(texts: list[str], key: bytes) -> None:
    """For any texts, surrogates included, and any key."""
    wanted = [expected(text, key) for text in texts]
    assert hash_ids(texts, key).tolist() == wanted
    # Few are hashed one by one, many together.
    assert hash_ids(texts * 20, key).tolist() == wanted * 20


@pytest.mark.parametrize("count", [0, 1, 2, id_hash._FEW, id_hash._FEW + 1, id_hash._TOGETHER, id_hash._TOGETHER + 1])  # noqa: SLF001
def test_batch_sizes(count: int) -> None:
    """None, few, exactly one block, and one more."""
    found = hash_ids([f"patient {number}" for number in range(count)], KEY)
    assert found.dtype == np.uint64
    assert found.tolist() == [expected(f"patient {number}", KEY) for number in range(count)]


def test_a_hash_of_zero_becomes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Zero means no id."""
    monkeypatch.setattr(
        id_hash, "_siphash", lambda _joined, _starts, lengths, _key: np.zeros(len(lengths), dtype=np.uint64)
    )
    assert hash_ids(["a", "b"] * 20, KEY).tolist() == [1] * 40
    monkeypatch.setattr(id_hash, "_stirred", lambda *_, rounds: (rounds, rounds, 0, 0))
    assert hash_ids(["a", "b"], KEY).tolist() == [1, 1]


def test_another_key_gives_other_hashes() -> None:
    """For short and long ids."""
    texts = ["12345", "x" * (LONGEST + 1)]
    assert not (hash_ids(texts, KEY) == hash_ids(texts, KEY[::-1])).any()


@pytest.mark.parametrize("key", [b"", bytes(15), bytes(17)], ids=len)
def test_a_key_of_another_length_is_rejected_without_being_shown(key: bytes) -> None:
    """A key in a traceback would not be secret."""
    with pytest.raises(ValueError, match=rf"^key: expected 16 bytes, found {len(key)}$"):
        hash_ids(["a"], key)


def test_long_ids_take_memory_one_at_a_time() -> None:
    """Two hundred ids of a mebibyte, among short ones, need a few mebibytes."""
    texts = ["é" * (1 << 19), "short"] * 200
    tracemalloc.start()
    hash_ids(texts, KEY)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20
