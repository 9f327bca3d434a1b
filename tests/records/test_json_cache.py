"""Caching repeated text speeds up decoding, and changes nothing else."""

import json
from typing import Any

import pytest

from monitor.records.formats.json_struct import MAX_KNOWN, LearnedStruct
from monitor.records.record_schema import RecordSchema
from tests.records.streams import GOOD, LINE, MODEL, decode_text, reasons_of, stream

FIRST = [{"probs": GOOD, "site": site, "version": "1", "model": "density"} for site in "AABB"]


def _text(records: list[dict[str, Any]]) -> memoryview:
    return memoryview(b"".join(json.dumps(record).encode() + b"\n" for record in records))


def _sites(struct: LearnedStruct, records: list[dict[str, Any]]) -> list[Any]:
    return list(struct.columns(struct.decode_lines(_text(records)))["site",])


@pytest.mark.parametrize(
    "sites",
    [
        pytest.param(["A", "B"], id="known"),
        pytest.param(["A", "C"], id="a new one"),
        pytest.param(["A", None], id="none"),
        pytest.param([None, None], id="none at all"),
        pytest.param(["A", 1, 1.5], id="numbers"),
        pytest.param(["A", ""], id="an empty one"),
        pytest.param(["A", "x" * 65], id="one that is too long"),
        pytest.param([str(number) for number in range(MAX_KNOWN + 1)], id="too many"),
    ],
)
def test_cached_texts_do_not_change_values(sites: list[Any]) -> None:
    """The same lines give the same values before and after."""
    struct = LearnedStruct(RecordSchema([MODEL]))
    assert _sites(struct, FIRST) == ["A", "A", "B", "B"]
    for _ in range(3):
        assert _sites(struct, [{"probs": GOOD, "site": site} for site in sites]) == sites
        assert _sites(struct, FIRST) == ["A", "A", "B", "B"]


def test_known_texts_are_not_created_again() -> None:
    struct = LearnedStruct(RecordSchema([MODEL]))
    _sites(struct, FIRST)
    one, other = _sites(struct, [{"probs": GOOD, "site": "Ward 7"}] * 2)
    one, other = _sites(struct, [{"probs": GOOD, "site": "Ward 7"}] * 2)
    assert one is other


def test_a_stream_without_repetition_falls_back_to_the_general_decoder() -> None:
    """After some failures; no value is lost meanwhile."""
    struct = LearnedStruct(RecordSchema([MODEL]))
    for number in range(200):
        assert _sites(struct, [{"probs": GOOD, "site": f"site {number}"}]) == [f"site {number}"]
    broken = LearnedStruct(RecordSchema([MODEL]))
    for _ in range(100):
        _sites(broken, FIRST)
        with pytest.raises(ValueError, match="malformed"):
            broken.decode_lines(memoryview(b"{oops}\n"))
    assert _sites(broken, FIRST) == ["A", "A", "B", "B"]


def test_another_model_after_many_of_the_same_is_still_rejected() -> None:
    """A name that is not cached is not mistaken for one that is."""
    decoder = stream()
    known = b"".join(json.dumps(record).encode() + b"\n" for record in FIRST) * 50
    other = LINE.replace(b"{", b'{"model": "other", ', 1)
    for _ in range(3):
        decoded = decode_text(known + other + known, decoder=decoder)
        assert reasons_of([decoded]) == {("", "unknown_model"): 1}
        assert decoded.accepted == 400
