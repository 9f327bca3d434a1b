"""`cpcmon estimate`: the same numbers as the Python API, in every format."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from monitor import Estimate, Reference, estimate
from monitor.demo.example_data import CLASSES
from tests.cli.conftest import Example
from tests.conftest import Ran
from tests.strategies import synthetic

Command = Callable[..., Ran]
RAW = [
    "ac",
    "doc",
    "atc_mc",
    "atc_ne",
    "cpc_acc",
    "cpc_ac",
    "cpc_acc_anchored",
    "cpc_ac_anchored",
    "calibrated_confidence",
]
ALL = {*RAW, *(f"{name}_ts" for name in RAW), "consensus", "adaptive"}


def vectors(path: Path) -> np.ndarray:
    """Return the outputs in a file."""
    return np.array([json.loads(line)["probs"] for line in path.read_text().splitlines()])


def test_json_has_the_documented_keys_and_the_numbers_of_the_python_api(example: Example, cpcmon: Command) -> None:
    ran = cpcmon("estimate", "--reference", example.reference, "--input", example.site_b, "--output", "json")
    assert (ran.code, ran.err) == (0, "")
    document = json.loads(ran.out)
    assert set(document) == {
        "records",
        "minimum_records",
        "level",
        "estimators",
        "field",
        "disagreement",
        "chance_disagreement",
        "performance",
        "class_mix",
    }
    assert (document["records"], document["minimum_records"]) == (2000, 200)
    assert set(document["estimators"]) == ALL
    wanted = estimate(Reference.load(example.reference), vectors(example.site_b))
    assert document["disagreement"] == wanted.disagreement
    assert document["field"] == {"80": list(wanted.field[0]), "90": list(wanted.field[1])}
    for name, found in document["estimators"].items():
        result = wanted[name]
        assert isinstance(result, Estimate)
        assert result.interval is not None
        assert (found["value"], found["lower"], found["upper"]) == (
            result.accuracy,
            result.interval.lower,
            result.interval.upper,
        )
        assert ("set_size" in found and "empty_share" in found) == name.startswith("cpc_")


def test_each_window_is_estimated_separately(example: Example, cpcmon: Command) -> None:
    """The last one is shorter."""
    words = ("--reference", example.reference, "--input", example.site_b, "--window", 700, "--output", "json")
    windows = json.loads(cpcmon("estimate", *words).out)["windows"]
    assert [window["records"] for window in windows] == [700, 700, 600]
    reference, outputs = Reference.load(example.reference), vectors(example.site_b)
    for window, start in zip(windows, (0, 700, 1400), strict=True):
        alone = estimate(reference, outputs[start : start + 700])["adaptive"]
        assert isinstance(alone, Estimate)
        assert window["estimators"]["adaptive"]["value"] == alone.accuracy


def test_csv_has_a_line_per_window_and_estimator(example: Example, cpcmon: Command) -> None:
    words = ("--reference", example.reference, "--input", example.site_b, "--window", 1000, "--output", "csv")
    rows = list(csv.DictReader(io.StringIO(cpcmon("estimate", *words).out)))
    classes = len(CLASSES)
    assert len(rows) == 2 * (len(ALL) + 4 + 5 * (classes + 1) + classes)
    beyond = {"sensitivity", "specificity", "ppv", "npv", "f1", "class_mix"}
    assert {row["estimator"] for row in rows} == {
        *ALL,
        "field_80",
        "field_90",
        "disagreement",
        "chance_disagreement",
        *beyond,
    }
    assert {row["class"] for row in rows if row["estimator"] == "ppv"} == {*CLASSES, ""}
    assert all(0.0 <= float(row["lower"]) <= float(row["upper"]) <= 1.0 for row in rows if row["lower"])


def test_the_table_shows_estimates_sets_and_limits(example: Example, cpcmon: Command) -> None:
    ran = cpcmon("estimate", "--reference", example.reference, "--input", example.site_b)
    for name in [*RAW, "consensus", "adaptive"]:
        assert f"\n{name} " in ran.out
    assert "so get labels for this window" in ran.out
    assert "\nfield interval of adaptive: 80% 0." in ran.out
    assert "about nine in ten accuracies lay inside" in ran.out
    for name in ("cpc_acc", "cpc_ac", "cpc_acc_anchored", "cpc_ac_anchored"):
        assert ran.out.count(f"\n{name} ") == 2, "its estimates, and its sets"
    assert "not shift" in ran.out
    assert "confident mistakes" in ran.out


def test_the_estimate_at_the_new_site_is_closer_to_the_truth_than_the_reference(example: Example) -> None:
    records = [json.loads(line) for line in example.site_b_labelled.read_text().splitlines()]
    reference = Reference.load(example.reference)
    right = [reference.classes[int(np.argmax(record["probs"]))] == record["label"] for record in records]
    realised = sum(right) / len(right)
    adaptive = estimate(reference, [record["probs"] for record in records])["adaptive"]
    assert isinstance(adaptive, Estimate)
    assert abs(adaptive.accuracy - realised) < 0.5 * abs(reference.calibration.accuracy - realised)


def test_windows_are_drawn_in_the_table(example: Example, cpcmon: Command) -> None:
    ran = cpcmon("estimate", "--reference", example.reference, "--input", example.site_b, "--window", 500)
    numbered = [line for line in ran.out.splitlines() if line.lstrip().startswith(("1 ", "2 ", "3 ", "4 "))]
    drawn, metrics = numbered[:4], numbered[4:]
    assert all("o" in line and "|" in line and "=" in line and "-" in line for line in drawn)
    assert [len(line.split()) for line in metrics] == [6] * 4, "the macro average of five metrics"


def test_variant_options(example: Example, cpcmon: Command) -> None:
    """--empty-sets and --doc-absolute change their estimators only."""
    words = ("--reference", example.reference, "--input", example.site_b, "--output", "json")
    plain = json.loads(cpcmon("estimate", *words).out)["estimators"]
    other = json.loads(cpcmon("estimate", *words, "--empty-sets", "skip", "--doc-absolute").out)["estimators"]
    changed = {name for name in ALL if plain[name]["value"] != other[name]["value"]}
    assert changed == {"doc", "doc_ts", "cpc_acc", "cpc_acc_ts", "cpc_ac", "cpc_ac_ts"}


def test_an_empty_file_has_no_estimate(example: Example, cpcmon: Command, tmp_path: Path) -> None:
    """Null and a reason, never NaN."""
    (tmp_path / "empty.jsonl").write_text("")
    words = ("--reference", example.reference, "--input", tmp_path / "empty.jsonl")
    document = json.loads(cpcmon("estimate", *words, "--output", "json").out)
    assert document["records"] == 0
    assert document["estimators"]["adaptive"] == {
        "value": None,
        "lower": None,
        "upper": None,
        "reason": "too_few_records",
    }
    assert document["disagreement"] is None
    assert "too_few_records" in cpcmon("estimate", *words).out
    assert "too_few_records" in cpcmon("estimate", *words, "--output", "csv").out
    assert "too_few_records" in cpcmon("estimate", *words, "--window", 200).out


def test_too_few_records_have_no_estimate(example: Example, cpcmon: Command, tmp_path: Path) -> None:
    """In every format, and for a short last window; --minimum-records lowers the limit."""
    lines = example.site_b.read_text().splitlines(keepends=True)
    (tmp_path / "few.jsonl").write_text("".join(lines[:199]))
    (tmp_path / "enough.jsonl").write_text("".join(lines[:399]))
    of = ("estimate", "--reference", example.reference, "--input")
    found = json.loads(cpcmon(*of, tmp_path / "few.jsonl", "--output", "json").out)
    assert (found["records"], found["minimum_records"], found["disagreement"]) == (199, 200, None)
    assert set(found["estimators"]) == ALL
    assert {(one["value"], one["reason"]) for one in found["estimators"].values()} == {(None, "too_few_records")}
    assert (
        "\nno estimate: too_few_records, 199 of at least 200 records; --minimum-records lowers"
        in cpcmon(*of, tmp_path / "few.jsonl").out
    )
    windows = json.loads(cpcmon(*of, tmp_path / "enough.jsonl", "--window", 200, "--output", "json").out)["windows"]
    assert [window["estimators"]["adaptive"]["value"] is None for window in windows] == [False, True]
    lowered = json.loads(cpcmon(*of, tmp_path / "few.jsonl", "--minimum-records", 199, "--output", "json").out)
    assert lowered["estimators"]["adaptive"]["value"] is not None


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--window", 0], "--window: expected a number of records above 0, found 0"),
        (["--window", -5], "--window: expected a number of records above 0, found -5"),
        (["--window", 50], "--window: expected at least 200 records"),
        (["--minimum-records", 0], "--minimum-records: expected a number of records above 0, found 0"),
    ],
)
def test_an_invalid_window_is_rejected(example: Example, cpcmon: Command, more: list[object], message: str) -> None:
    ran = cpcmon("estimate", "--reference", example.reference, "--input", example.site_a, *more)
    assert ran.code == 2
    assert message in ran.err


def test_outputs_with_another_number_of_classes_are_rejected(example: Example, cpcmon: Command, tmp_path: Path) -> None:
    (tmp_path / "three.jsonl").write_text('{"probs": [0.5, 0.3, 0.2]}\n')
    ran = cpcmon("estimate", "--reference", example.reference, "--input", tmp_path / "three.jsonl")
    assert ran.code == 2
    assert "line 1: expected" in ran.err
    assert "wrong_k" in ran.err


def test_a_damaged_reference_is_rejected(example: Example, cpcmon: Command, tmp_path: Path) -> None:
    (tmp_path / "cut.ref").write_bytes(example.reference.read_bytes()[:-100])
    ran = cpcmon("estimate", "--reference", tmp_path / "cut.ref", "--input", example.site_a)
    assert ran.code == 2
    assert "damaged or truncated" in ran.err
    assert ran.out == ""


def test_warnings_of_the_reference_are_printed(cpcmon: Command, tmp_path: Path) -> None:
    probabilities, labels = synthetic(60, 3, seed=1)
    Reference.calibrate(probabilities, labels, model="m").save(tmp_path / "m.ref")
    np.save(tmp_path / "w.npy", probabilities)
    ran = cpcmon("estimate", "--reference", tmp_path / "m.ref", "--input", tmp_path / "w.npy", "--output", "json")
    assert "m.ref: warning: 60 records: with fewer than 500" in ran.err
    assert json.loads(ran.out)["records"] == 60


@pytest.mark.slow
def test_a_binary_score_equals_two_probabilities(cpcmon: Command, tmp_path: Path) -> None:
    probabilities, labels = synthetic(300, 2, seed=1)
    np.savez(tmp_path / "score.npz", score=probabilities[:, 1], label=labels)
    np.savez(
        tmp_path / "probs.npz", probs=np.column_stack([1 - probabilities[:, 1], probabilities[:, 1]]), label=labels
    )
    values = []
    for kind in ("score", "probs"):
        data, reference = tmp_path / f"{kind}.npz", tmp_path / f"{kind}.ref"
        words = ("--kind", kind, "--input", data)
        assert cpcmon("calibrate", *words, "--model", "m", "--output", reference).code == 0
        values.append(
            json.loads(cpcmon("estimate", *words, "--reference", reference, "--output", "json").out)["estimators"]
        )
    assert values[0] == values[1]
