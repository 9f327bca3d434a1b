"""Labelled baselines in a reference: from Python, in the file, and refused when they are damaged."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor import CpcmonError, InvalidReference, Reference
from monitor.core.baselines.labelled_baselines import SegmentBaselines
from monitor.core.segments import Segment
from monitor.reference.file_format import Array, pack, unpack
from tests.reference.test_reference import write_sealed
from tests.strategies import hospital

SITES = ["A"] * 200 + ["B"] * 150 + ["C"] * 30 + [None] * 20


@cache
def reference() -> Reference:
    """A reference of 400 records with baselines of two sites, and of their scanners."""
    vectors, labels = hospital(np.random.default_rng(1), 400)
    columns: dict[str, Any] = {"site": SITES, "scanner": np.arange(400) % 2}
    by = [["site"], ["site", "scanner"]]
    return Reference.calibrate(vectors, labels, model="density", segments=columns, segment_by=by)


def baselines(of: Reference) -> SegmentBaselines:
    found = of.calibration.segments
    assert found is not None
    return found


def test_segments_from_python() -> None:
    """Numbers are texts, as in records; without `segment_by` each column is a set of its own."""
    found = baselines(reference())
    names: tuple[Segment, ...] = found.segments
    assert [dict(one) for one in names if len(one) == 1] == [{"site": "A"}, {"site": "B"}]
    assert {one[1] for one in names if len(one) == 2} == {("scanner", "0"), ("scanner", "1")}
    assert found[(("site", "A"),)].records == 200
    vectors, labels = hospital(np.random.default_rng(1), 120)
    plain = Reference.calibrate(vectors, labels, model="m", segments={"site": ["A"] * 120, "scanner": [1, 2] * 60})
    assert [dict(one) for one in baselines(plain).segments] == [{"scanner": "1"}, {"scanner": "2"}, {"site": "A"}]
    assert Reference.calibrate(vectors, labels, model="m").calibration.segments is None
    few = Reference.calibrate(vectors, labels, model="m", segments={"site": list("ABC") * 40})
    assert few.calibration.segments is None


def test_referred_records_are_in_no_segment() -> None:
    vectors, labels = hospital(np.random.default_rng(1), 120)
    decided = [None, *vectors.argmax(axis=1)[1:].tolist()]
    found = Reference.calibrate(vectors, labels, model="m", segments={"site": ["A", "B"] * 60}, decide=decided)
    assert [baselines(found)[(("site", site),)].records for site in "AB"] == [59, 60]


@pytest.mark.parametrize(
    ("segments", "by", "words"),
    [
        ({"site": ["A"] * 3}, None, r"segments\['site'\]: expected 4 values, one a record, found \(3,\)"),
        ({"site": ["A", "B", "é", "A"]}, None, r"segments\['site'\]\[2\]: expected segments of at most 64 ASCII"),
        ({"site": ["A", True, "A", "A"]}, None, r"segments\['site'\]\[1\]: expected segments"),
        ({"site": [None] * 4}, None, "segments: expected records with the field 'site', found none"),
        ({"site": ["A"] * 4}, [["ward"]], "segments: expected records with the field 'ward', found none"),
        ({"site": ["A"] * 4}, [["site"], ["site"]], "segments: expected each set of fields once"),
    ],
)
def test_segments_that_cannot_be(segments: Any, by: Any, words: str) -> None:
    with pytest.raises(CpcmonError, match=words):
        Reference.calibrate([[0.5, 0.5]] * 4, [0, 1, 0, 1], model="m", segments=segments, segment_by=by)


def test_baselines_are_loaded_bit_for_bit(tmp_path: Path) -> None:
    reference().save(tmp_path / "density.ref")
    loaded = Reference.load(tmp_path / "density.ref")
    assert loaded == reference()
    before, after = baselines(reference()), baselines(loaded)
    assert (after.names, after.segments) == (before.names, before.segments)
    for name in ("records", "right", "own_bias", "decided", "confidence", "bias", "bias_variance", "accuracy"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))


def _changed(array: dict[str, str], place: int, by: float) -> dict[str, str]:
    values = unpack(Array(**array))
    values[place] += by
    packed = pack(values)
    return {"dtype": packed.dtype, "data": packed.data}


DAMAGES: dict[str, tuple[Any, str]] = {
    "more records than the reference": (lambda s: s.update(records=_changed(s["records"], 0, 900)), "another number"),
    "more right than records": (lambda s: s.update(right=_changed(s["right"], 0, 500)), "impossible counts"),
    "too few records": (lambda s: s.update(records=_changed(s["records"], 0, -190)), "impossible counts"),
    "negative counts": (lambda s: s.update(right=_changed(s["right"], 0, -400)), "invalid counts"),
    "floats for counts": (
        lambda s: s.update(right=_changed({**s["right"], "dtype": "float64"}, 0, 0.0)),
        "invalid counts",
    ),
    "decisions of others": (lambda s: s.update(decided=_changed(s["decided"], 0, 1)), "outputs of another number"),
    "confidences of others": (lambda s: s.update(confidence=_changed(s["confidence"], 0, 1)), "outputs of another"),
    "a bias that cannot be": (lambda s: s["bias"].update(ac=_changed(s["bias"]["ac"], 0, 3.0)), "impossible bias"),
    "no number": (lambda s: s["bias"].update(ac=_changed(s["bias"]["ac"], 0, float("nan"))), "impossible bias"),
    "without an estimator": (lambda s: s["bias"].pop("adaptive"), r"list of estimators \(adaptive\): calibrate again"),
    "an unknown estimator": (lambda s: s["bias"].update(x=s["bias"]["ac"]), r"list of estimators \(x\)"),
    "a segment less": (lambda s: s["segments"].pop(), "another number of segments"),
    "a segment twice": (lambda s: s["segments"].__setitem__(0, s["segments"][1][::-1]), "a segment twice"),
    "a field twice": (lambda s: s["segments"][1].append(["site", "Z"]), "a field twice"),
    "an invalid value": (lambda s: s["segments"][0][0].__setitem__(1, "é"), "invalid segments"),
    "all records as a segment": (lambda s: s["segments"].__setitem__(0, []), "invalid segments"),
    "no segments": (lambda s: s.update(segments=[]), "a segment twice, or none"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_baselines_are_refused(tmp_path: Path, damage: str) -> None:
    """Though the fingerprint fits."""
    reference().save(tmp_path / "density.ref")
    content = json.loads((tmp_path / "density.ref").read_text().partition("\n")[2])
    change, words = DAMAGES[damage]
    change(content["segments"])
    write_sealed(tmp_path / "density.ref", content)
    with pytest.raises(InvalidReference, match=f"a reference of format 1.*{words}"):
        Reference.load(tmp_path / "density.ref")


def test_baselines_without_adaptive_are_refused(tmp_path: Path) -> None:
    """Every evaluation would fail: corrected field intervals need it."""
    reference().save(tmp_path / "density.ref")
    content = json.loads((tmp_path / "density.ref").read_text().partition("\n")[2])
    content["adaptive_weight"] = None
    del content["intervals"]["errors"]["adaptive"]
    write_sealed(tmp_path / "density.ref", content)
    with pytest.raises(InvalidReference, match="segments without the weight of adaptive"):
        Reference.load(tmp_path / "density.ref")
