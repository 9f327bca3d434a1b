"""Decisions on the command line: at a threshold, and as the records say."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from monitor import Reference
from tests.conftest import Ran
from tests.strategies import synthetic

Command = Callable[..., Ran]
NAMES = ("--classes", "healthy,cancer")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Labelled records with the device's own decisions, which are those at 0.13; every tenth is referred to a person."""
    for name, seed in (("source", 1), ("target", 2)):
        lines = [
            {
                "probs": p.tolist(),
                "label": int(label),
                "called": None if place % 10 == 0 else ["healthy", "cancer"][int(p[1] >= np.float32(0.13))],
            }
            for place, (p, label) in enumerate(zip(*synthetic(500, 2, seed=seed), strict=True))
        ]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def realised(path: Path, *, referred: bool) -> float:
    """Return the accuracy of the decisions, by a plain count."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    kept = [one for one in records if referred or one["called"] is not None]
    return sum(bool((one["probs"][1] >= 0.13) == one["label"]) for one in kept) / len(kept)


def test_at_a_threshold_and_by_the_record(files: Path, cpcmon: Command) -> None:
    """Calibrate, estimate and evaluate: with the same records left out, all numbers are the same."""
    source, target, accuracies = files / "source.jsonl", files / "target.jsonl", {}
    for option, value, words in (
        ("--decide-at", "cancer=0.13", "decides            cancer at 0.13 or above\n"),
        ("--decide-field", "called", "decides            what each record says\n"),
    ):
        by_record, saved = option == "--decide-field", files / "m.ref"
        ran = cpcmon("calibrate", "--input", source, "--model", "m", *NAMES, option, value, "--output", saved)
        assert (ran.code, words in ran.out) == (0, True), ran.err
        left_out = "left out 50 records that were referred to a person"
        assert (left_out in ran.err) == by_record
        reference = Reference.load(saved)
        assert reference.calibration.accuracy == pytest.approx(realised(source, referred=not by_record))
        field = ("--decide-field", "called") if by_record else ()
        ran = cpcmon("estimate", "--reference", saved, "--input", target, *field, "--output", "json")
        assert (ran.code, json.loads(ran.out)["records"]) == (0, 450 if by_record else 500)
        ran = cpcmon("estimate", "--reference", saved, "--input", target, *field)
        assert reference.calibration.decision.described(reference.classes) in ran.out.splitlines()[0]
        ran = cpcmon("evaluate", "--source", source, "--target", target, *NAMES, option, value, "--output", "json")
        (pair,) = json.loads(ran.out)["pairs"]
        assert pair["target_accuracy"] == pytest.approx(realised(target, referred=not by_record))
        assert pair["source_accuracy"] == reference.calibration.accuracy
        accuracies[option] = pair["estimates"]["ac"]
    assert abs(accuracies["--decide-at"] - accuracies["--decide-field"]) < 0.05


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--decide-at", "cancer"), "--decide-at: expected CLASS=THRESHOLD such as cancer=0.13, found 'cancer'"),
        (("--decide-at", "argmax"), "--decide-at: expected CLASS=THRESHOLD such as cancer=0.13, found 'argmax'"),
        (("--decide-at", "cyst=0.1"), "--decide-at: expected one of the classes healthy and cancer, found 'cyst'"),
        (("--decide-at", "cancer=1.1"), "--decide-at: expected a threshold above 0 and up to 1, found '1.1'"),
        (("--decide-field", "absent"), "line 1: expected the decision of the device, found none (missing_field)"),
        (("--decide", "argmax", "--decide-at", "cancer=1"), "not allowed with argument --decide"),
    ],
)
def test_mistakes(files: Path, cpcmon: Command, words: tuple[str, ...], message: str) -> None:
    saved = files / "m.ref"
    ran = cpcmon("calibrate", "--input", files / "source.jsonl", "--model", "m", *NAMES, *words, "--output", saved)
    assert ran.code == 2
    assert message in ran.err
    assert not saved.exists()


def test_an_estimate_needs_the_field_that_the_reference_was_made_with(files: Path, cpcmon: Command) -> None:
    source, saved = files / "source.jsonl", files / "m.ref"
    words = ("calibrate", "--input", source, "--model", "m", *NAMES, "--output", saved)
    assert cpcmon(*words, "--decide-field", "called").code == 0
    ran = cpcmon("estimate", "--reference", saved, "--input", source)
    wanted = (
        "--decide-field: expected the field of the decision, found none: the reference decides what each record says"
    )
    assert (ran.code, wanted in ran.err) == (2, True)
    assert cpcmon(*words, "--decide", "argmax").code == 0
    ran = cpcmon("estimate", "--reference", saved, "--input", source, "--decide-field", "called")
    assert "--decide-field: expected none, found called: the reference decides the most probable class" in ran.err


def test_watch_needs_the_field_of_the_decision(files: Path, cpcmon: Command) -> None:
    source, saved, inbox = files / "source.jsonl", files / "m.ref", files / "inbox"
    words = ("calibrate", "--input", source, "--model", "m", *NAMES, "--output", saved, "--decide-field", "called")
    assert cpcmon(*words).code == 0
    inbox.mkdir()
    (files / "target.jsonl").rename(inbox / "target.jsonl")
    watch = ("watch", inbox, "--reference", saved, "--state", files / "state", "--once", "--json")
    ran = cpcmon(*watch)
    wanted = (
        "--field: expected predicted=PATH, the field of the decision, found none, and the records of model m decide"
    )
    assert (ran.code, wanted in ran.err) == (2, True)
    ran = cpcmon(*watch, "--field", "predicted=called")
    assert (ran.code, json.loads(ran.out)["records"]) == (0, 450)
    assert "left out 50 records that were referred to a person" in ran.err
