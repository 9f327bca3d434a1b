"""The reference file round-trips, and damaged files are rejected with a reason."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor import CpcmonError, Estimate, InvalidInput, InvalidReference, NoEstimate, Reference, UsageError, estimate
from monitor.core.decisions import Decision
from monitor.core.estimate import Why
from monitor.reference.summary import Concern
from tests.strategies import synthetic


@pytest.fixture(scope="module")
def reference() -> Reference:
    """A reference of 300 records and three named classes."""
    probabilities, labels = synthetic(300, 3, seed=1)
    return Reference.calibrate(probabilities, labels, model="density", version="2.1", classes=("a", "b", "c"))


@pytest.fixture
def saved(reference: Reference, tmp_path: Path) -> Path:
    """The same, on disk."""
    path = tmp_path / "density.ref"
    reference.save(path)
    return path


def resealed(path: Path, old: str, new: str) -> None:
    """Change the content and give it a fitting fingerprint, as someone who edits by hand might."""
    head, _, content = path.read_text().partition("\n")
    assert old in content
    content = content.replace(old, new, 1)
    words = head.split()
    path.write_text(f"{words[0]} {words[1]} {hashlib.sha256(content.encode()).hexdigest()}\n{content}")


def write_sealed(path: Path, content: object) -> None:
    """Write a content with a fitting fingerprint."""
    text = json.dumps(content)
    path.write_text(f"cpcmon-reference 2 {hashlib.sha256(text.encode()).hexdigest()}\n{text}")


def test_what_is_saved_is_loaded_bit_for_bit(reference: Reference, saved: Path) -> None:
    """Every estimate and interval of the loaded reference equals the original's."""
    loaded = Reference.load(saved)
    window, _ = synthetic(200, 3, seed=2)
    assert estimate(loaded, window) == estimate(reference, window)
    for option in ("skip", "zero"):
        assert estimate(loaded, window, empty_sets=option) == estimate(reference, window, empty_sets=option)
    assert estimate(loaded, window, doc_absolute=True) == estimate(reference, window, doc_absolute=True)
    assert (loaded.model, loaded.version, loaded.classes, loaded.created) == (
        "density",
        "2.1",
        ("a", "b", "c"),
        reference.created,
    )
    assert loaded.summary == reference.summary
    assert loaded.fingerprint == reference.fingerprint


def test_the_fingerprint_is_the_sha256_of_the_content(saved: Path) -> None:
    """Anyone can check it with sha256sum."""
    header, _, content = saved.read_bytes().partition(b"\n")
    assert header.split()[2].decode() == hashlib.sha256(content).hexdigest() == Reference.load(saved).fingerprint


def test_the_file_is_json_with_what_people_look_for(saved: Path) -> None:
    """Class order, counts, A, T, name, version, time."""
    content = json.loads(saved.read_text().partition("\n")[2])
    assert content["model"] == "density"
    assert content["classes"] == ["a", "b", "c"]
    assert content["records"] == sum(content["summary"]["class_records"]) == 300
    assert content["accuracy"] == content["right"] / 300
    assert content["temperature"] > 0
    assert content["created"].endswith("+00:00")
    assert set(content["estimators"]) >= {"ac", "ac_ts", "cpc_ac_anchored_ts", "calibrated_confidence"}


def test_the_file_does_not_hold_the_records(tmp_path: Path) -> None:
    """Only the score of the true label, sorted, and curves: the file of 1000 classes is far smaller than its data."""
    probabilities, labels = synthetic(100, 1000, seed=1)
    Reference.calibrate(probabilities, labels, model="large").save(tmp_path / "large.ref")
    assert (tmp_path / "large.ref").stat().st_size < probabilities.nbytes / 2


def test_any_flipped_byte_is_noticed(saved: Path) -> None:
    """Header or content, nothing slips through."""
    good = saved.read_bytes()
    for place in {*range(120), *range(120, len(good), len(good) // 200)}:
        saved.write_bytes(good[:place] + bytes([good[place] ^ 0x10]) + good[place + 1 :])
        with pytest.raises(InvalidReference, match=r"density\.ref: expected"):
            Reference.load(saved)


@pytest.mark.parametrize("kept", [0, 1, 50, 90, 1000, -1])
def test_a_file_truncated_is_rejected(saved: Path, kept: int) -> None:
    """As after a full disk or a broken copy."""
    saved.write_bytes(saved.read_bytes()[:kept])
    with pytest.raises(InvalidReference):
        Reference.load(saved)


def test_a_newer_format_says_what_to_do(saved: Path) -> None:
    """The words name the file, both formats and the way out."""
    saved.write_bytes(saved.read_bytes().replace(b"cpcmon-reference 3 ", b"cpcmon-reference 4 ", 1))
    expected = r"density\.ref: expected .* format 1, 2 or 3, found format 4: .*upgrade cpcmon"
    with pytest.raises(InvalidReference, match=expected):
        Reference.load(saved)


def test_a_reference_of_format_1_decides_by_argmax(reference: Reference, saved: Path) -> None:
    content = json.loads(saved.read_text().partition("\n")[2])
    assert content.pop("decision") == "argmax"
    text = json.dumps(content)
    saved.write_text(f"cpcmon-reference 1 {hashlib.sha256(text.encode()).hexdigest()}\n{text}")
    window, _ = synthetic(200, 3, seed=2)
    loaded = Reference.load(saved)
    assert loaded.calibration.decision == Decision()
    assert estimate(loaded, window) == estimate(reference, window)


@pytest.mark.parametrize(("classes", "headline"), [(2, "adaptive"), (3, "consensus")])
def test_an_older_reference_gets_adaptive_where_it_holds_what_that_needs(
    tmp_path: Path, classes: int, headline: str
) -> None:
    """Of two classes, the probability of the true label says all; of more, calibrating again is the way."""
    probabilities, labels = synthetic(300, classes, seed=1)
    window, _ = synthetic(200, classes, seed=2, sharpness=1.0)
    made = Reference.calibrate(probabilities, labels, model="m")
    made.save(tmp_path / "m.ref")
    content = json.loads((tmp_path / "m.ref").read_text().partition("\n")[2])
    del content["adaptive_weight"], content["outputs"], content["intervals"]["errors"]["adaptive"]
    text = json.dumps(content)
    (tmp_path / "m.ref").write_text(f"cpcmon-reference 2 {hashlib.sha256(text.encode()).hexdigest()}\n{text}")

    older = Reference.load(tmp_path / "m.ref").calibration
    found = older.estimate(window)
    assert older.headline == headline
    assert ("adaptive" in found) is (headline == "adaptive")
    assert (found.field == ()) is (headline == "consensus")
    if headline == "adaptive":
        one, before = found["adaptive"], made.calibration.estimate(window)["adaptive"]
        assert isinstance(one, Estimate)
        assert isinstance(before, Estimate)
        assert one.accuracy == before.accuracy
        assert one.interval is not None
        assert one.interval.lower < one.accuracy < one.interval.upper


def test_how_the_device_decides_is_saved(tmp_path: Path) -> None:
    """Accuracy, classes and reliability are those of the decisions; estimates of the loaded reference are the same."""
    probabilities, labels = synthetic(300, 2, seed=1)
    window, _ = synthetic(200, 2, seed=2)
    classes = ("healthy", "a=b")
    called = (probabilities[:, 1] >= np.float32(0.13)).astype(np.int64)
    own: list[Any] = [None, *called[1:]]
    made = {
        "a=b=0.13": Reference.calibrate(probabilities, labels, model="m", classes=classes, decide="a=b=0.13"),
        "field": Reference.calibrate(probabilities, labels, model="m", classes=classes, decide=own),
    }
    for text, one in made.items():
        one.save(tmp_path / "m.ref")
        loaded = Reference.load(tmp_path / "m.ref")
        assert loaded == one
        decision = loaded.calibration.decision
        assert decision == one.calibration.decision
        assert decision.text(classes) == text
        left_out = int(text == "field")
        assert one.calibration.records == 300 - left_out
        assert one.calibration.right == np.count_nonzero(called[left_out:] == labels[left_out:])
        assert one.summary.class_predicted == tuple(np.bincount(called[left_out:]).tolist())
        assert sum(part.right for part in one.summary.reliability_scaled) == one.calibration.right
        assert one.summary.reliability[-1].confidence > 0.9
        decided = (window[:, 1] >= np.float32(0.13)).astype(np.int64) if text == "field" else None
        assert estimate(loaded, window, decided=decided) == estimate(one, window, decided=decided)
        with pytest.raises(UsageError, match="decided: expected"):
            estimate(one, window, decided=[0] * 200 if decided is None else None)
    resealed(tmp_path / "m.ref", '"decision": "field"', '"decision": "healthy=1.5"')
    with pytest.raises(InvalidReference, match=r"format 1, 2 or 3, found decision: expected a threshold above 0"):
        Reference.load(tmp_path / "m.ref")


def test_a_device_that_gives_up_accuracy_on_purpose_is_no_concern() -> None:
    """Nearly everybody is called, so that no case is missed; with swapped classes it is one all the same."""
    probabilities, labels = synthetic(600, 2, seed=1)
    for decide, swapped, wanted in (
        ("0=0.01", False, set()),
        ("argmax", True, {Concern.BELOW_LARGEST_CLASS}),
        ("0=0.4", True, {Concern.CLASSES_MIXED_UP}),
    ):
        truth = 1 - labels if swapped else labels
        summary = Reference.calibrate(probabilities, truth, model="m", decide=decide).summary
        assert set(summary.warnings()) - {Concern.TEMPERATURE_AT_BOUND} == wanted


@pytest.mark.parametrize(
    ("decide", "words"),
    [
        ("b", "decide: expected argmax, field, or CLASS=THRESHOLD such as cancer=0.13, found 'b'"),
        ("c=0.5", "decide: expected one of the classes a and b, found 'c'"),
        ("b=0", "decide: expected a threshold above 0 and up to 1, found '0'"),
        ("b=nan", "decide: expected a threshold above 0 and up to 1, found 'nan'"),
        ("b=x", "decide: expected a threshold above 0 and up to 1, found 'x'"),
        ("field", "decide: expected the decision of each record, found none"),
        (["b", "c"], r"decided\[1\]: expected one of the classes a, b, or None, found 'c'"),
        (["b"], r"decided: expected 2 classes, one a record, found \(1,\)"),
    ],
)
def test_decisions_that_cannot_be(decide: Any, words: str) -> None:
    with pytest.raises(CpcmonError, match=words):
        Reference.calibrate([[0.5, 0.5], [0.1, 0.9]], [0, 1], model="m", classes=("a", "b"), decide=decide)


def test_a_threshold_needs_two_classes() -> None:
    with pytest.raises(UsageError, match="decide: expected two classes for a threshold, found 3"):
        Reference.calibrate(*synthetic(30, 3, seed=1), model="m", decide="1=0.5")


def test_something_else_is_rejected_by_name(tmp_path: Path) -> None:
    """A CSV given as reference is called what it is not."""
    (tmp_path / "wrong.csv").write_text("probs,label\n")
    with pytest.raises(InvalidReference, match="made by `cpcmon calibrate`"):
        Reference.load(tmp_path / "wrong.csv")


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    """No traceback of the operating system's words alone."""
    with pytest.raises(InvalidReference, match=r"none\.ref: expected a reference file, found No such file"):
        Reference.load(tmp_path / "none.ref")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param('"float32"', '"object"', id="another type of numbers"),
        pytest.param('"records": 300', '"records": 0', id="no records"),
        pytest.param('"ac": {}', '"ac_of_tomorrow": {}', id="another estimator"),
        pytest.param('"cpc_ac_ts[skip]"', '"cpc_ac_ts[tomorrow]"', id="another interval"),
        pytest.param('"level": 0.95', '"level": 7.0', id="an impossible level"),
        pytest.param('"model"', '"modell"', id="another field"),
        pytest.param('"cut"', '"cat"', id="another estimator field"),
        pytest.param('"temperature": ', '"temperature": -', id="negative temperature"),
        pytest.param(
            '"reliability": [', '"reliability": [{"records": 0, "right": 0, "confidence": 0.0},', id="16 bins"
        ),
        pytest.param('"right": 0,', '"right": 1,', id="more right than there are"),
        pytest.param('"confidence": 0.', '"confidence": 7.', id="an impossible confidence"),
    ],
)
def test_a_sealed_but_nonsensical_file_is_rejected(saved: Path, old: str, new: str) -> None:
    """The fingerprint is no signature; the content is still checked."""
    resealed(saved, old, new)
    with pytest.raises(InvalidReference, match=r"density\.ref: expected a reference of format 1"):
        Reference.load(saved)


def test_reliability_of_other_counts_is_rejected(reference: Reference, saved: Path) -> None:
    """Bins that add up to another number of records are of another reference."""
    place, full = next((i, one) for i, one in enumerate(reference.summary.reliability) if one.records > one.right)
    content = json.loads(saved.read_text().partition("\n")[2])
    content["summary"]["reliability"][place]["records"] = full.records + 1
    write_sealed(saved, content)
    with pytest.raises(InvalidReference, match="reliability bins of another number of records"):
        Reference.load(saved)


def test_a_reference_of_the_release_before_loads_without_reliability(reference: Reference, saved: Path) -> None:
    """It evaluates as ever; only the bins are not known."""
    content = json.loads(saved.read_text().partition("\n")[2])
    assert len(content["summary"].pop("reliability")) == len(content["summary"].pop("reliability_scaled")) == 15
    write_sealed(saved, content)
    loaded = Reference.load(saved)
    window, _ = synthetic(200, 3, seed=2)
    assert (loaded.summary.reliability, loaded.summary.reliability_scaled) == ((), ())
    assert loaded.summary.calibration_error == reference.summary.calibration_error
    assert estimate(loaded, window) == estimate(reference, window)


def test_a_field_of_the_summary_that_is_not_known_is_ignored(reference: Reference, saved: Path) -> None:
    """So a release can add one, as this one did, and those before it still read the file."""
    content = json.loads(saved.read_text().partition("\n")[2])
    content["summary"]["of_tomorrow"] = [{"records": 3}]
    write_sealed(saved, content)
    assert Reference.load(saved).summary == reference.summary


def test_saving_over_a_reference_replaces_it_whole(reference: Reference, saved: Path) -> None:
    """No temporary file stays behind."""
    reference.save(saved)
    assert [path.name for path in saved.parent.iterdir()] == ["density.ref"]
    assert Reference.load(saved).fingerprint == reference.fingerprint


def test_bad_vectors_are_rejected_with_their_rows(reference: Reference) -> None:
    """Through Python as on the command line."""
    window = np.array([[0.5, 0.3, 0.2], [0.9, 0.9, 0.9], [np.nan, 0.5, 0.5]])
    with pytest.raises(InvalidInput, match=r"(?s)row 2.*bad_sum.*row 3.*not_finite"):
        estimate(reference, window)


def test_from_too_few_records_there_is_no_estimate(reference: Reference) -> None:
    """Fewer than 200, as in the daemon: each answer is the reason, with both numbers. The caller may lower it."""
    window, _ = synthetic(199, 3, seed=2)
    found = estimate(reference, window)
    assert set(found.values()) == {NoEstimate(Why.TOO_FEW_RECORDS, 199, minimum_records=200)}
    assert str(found["adaptive"]) == "no estimate: too_few_records, 199 of at least 200 records"
    assert (found.disagreement, found.chance_disagreement) == (None, None)
    assert isinstance(estimate(reference, window, minimum_records=199)["consensus"], Estimate)
    with pytest.raises(UsageError, match="minimum_records: expected a number of records above 0, found 0"):
        estimate(reference, window, minimum_records=0)


def test_the_answers_of_a_window_are_a_mapping_by_estimator(reference: Reference) -> None:
    """It can be listed and counted, and a wrong name is reported which there are."""
    found = estimate(reference, synthetic(200, 3, seed=2)[0])
    assert list(found) == list(found.estimators)
    assert (len(found), "consensus" in found, dict(found)) == (20, True, found.estimators)
    with pytest.raises(KeyError, match=r"expected the name of an estimator \(ac, .*adaptive\), found 0"):
        found[0]  # type: ignore[index]


def test_a_reference_is_shown_on_one_short_line(reference: Reference) -> None:
    """Not as the thousands of numbers it holds; of many classes only the first are named."""
    accuracy = f"{reference.calibration.accuracy:.4f}"
    assert repr(reference) == (
        f"Reference(model='density', version='2.1', classes=(a, b, c), records=300, accuracy={accuracy})"
    )
    many = Reference.calibrate(*synthetic(30, 100, seed=1), model="m")
    assert "classes=(0, 1, 2, 3, 4 and 95 more)" in repr(many)
    assert len(repr(many.calibration)) < 200


def test_logits_are_accepted_when_the_call_says_so(reference: Reference) -> None:
    """Declared, never guessed."""
    window, _ = synthetic(200, 3, seed=2)
    from_logits = estimate(reference, np.log(window.astype(np.float64)) + 3.0, kind="logits")
    assert from_logits["ac"].accuracy == pytest.approx(estimate(reference, window)["ac"].accuracy, abs=1e-7)  # type: ignore[union-attr]


@pytest.mark.parametrize("level", [0.0, 0.49, 1.0, 95.0, float("nan")])
def test_an_impossible_level_is_rejected(level: float) -> None:
    """95 is not 0.95."""
    with pytest.raises(InvalidReference, match="level: expected"):
        Reference.calibrate([[0.5, 0.5]], [0], model="m", level=level)


def test_no_records_make_no_reference() -> None:
    """An empty set is rejected."""
    with pytest.raises(InvalidReference, match="at least one labelled record"):
        Reference.calibrate(np.empty((0, 3)), np.empty(0, dtype=np.int64), model="m")


def test_arrays_of_unequal_length_are_rejected(saved: Path) -> None:
    """As someone who edits by hand may leave them: no estimate trips over them later."""
    content = json.loads(saved.read_text().partition("\n")[2])
    short = content["estimators"]["cpc_ac_anchored"]["anchor"]["data"][:32]
    old = json.dumps(content["estimators"]["cpc_ac_anchored"]["anchor"]["data"])
    resealed(saved, old, json.dumps(short))
    with pytest.raises(InvalidReference, match="unequal length"):
        Reference.load(saved)


def test_references_are_equal_by_fingerprint(reference: Reference, saved: Path) -> None:
    """A loaded reference equals the one that was saved; another does not."""
    assert Reference.load(saved) == reference
    assert len({Reference.load(saved), reference}) == 1
    assert Reference.calibrate(*synthetic(30, 3, seed=7), model="density") != reference


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        pytest.param(lambda r: estimate(r, [[0.5, 0.5], [1.0]]), InvalidInput, "unequal length", id="ragged"),
        pytest.param(
            lambda r: estimate(r, [[0.5, 0.3, 0.2]], kind="odds"), UsageError, "kind: expected one of", id="kind"
        ),
        pytest.param(
            lambda r: estimate(r, [[0.5, 0.3, 0.2]], empty_sets="no"), UsageError, "empty_sets", id="empty sets"
        ),
        pytest.param(
            lambda _: Reference.calibrate([[0.5, 0.5]], [0], model=""), InvalidReference, "model", id="no name"
        ),
        pytest.param(lambda r: estimate(r, [0.5, 0.3, 0.2]), InvalidInput, "outputs: expected", id="one dimension"),
    ],
)
def test_wrong_calls_get_our_errors(reference: Reference, call: Any, error: type[Exception], message: str) -> None:
    """With what was expected and what was found, never a bare ValueError."""
    with pytest.raises(error, match=message):
        call(reference)


@pytest.mark.slow
def test_a_reference_is_calibrated_from_logits_when_the_call_says_so() -> None:
    """The same accuracy, and T, as from probabilities."""
    probabilities, labels = synthetic(200, 3, seed=1)
    from_logits = Reference.calibrate(np.log(probabilities.astype(np.float64)), labels, model="m", kind="logits")
    plain = Reference.calibrate(probabilities, labels, model="m")
    assert from_logits.calibration.right == plain.calibration.right
    assert from_logits.calibration.temperature == pytest.approx(plain.calibration.temperature, rel=1e-5)
