"""`cpcmon plan`: how soon a drop is noticed."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from monitor.cli import main
from monitor.config.reading import read_config
from monitor.core.alerts import AlertType, Severity
from monitor.core.change import MEMBERS, ChangeEvidence, Detector, EvidenceTable, MemberValues
from monitor.core.totals import Gauge, member_values
from monitor.records.offline_files import accept_array
from monitor.reference import delays
from monitor.reference.delays import DROPS, Known, OwnStream, Setup
from monitor.reference.reference import Reference
from tests.cli.conftest import Example
from tests.reference.test_reference import write_sealed

QUICK = ["--rate", "100000/day", "--every", "5m"]


@pytest.fixture(autouse=True)
def _few_replays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delays, "_RUNS", (20, 20))


def words(example: Example, *more: object) -> list[str]:
    return ["plan", "--reference", str(example.reference), *QUICK, *map(str, more)]


def planned(example: Example, capsys: pytest.CaptureFixture[str], *more: object) -> dict[str, Any]:
    assert main(words(example, "--json", *more)) == 0
    return dict(json.loads(capsys.readouterr().out))


def test_a_larger_drop_is_noticed_sooner_and_one_within_the_tolerance_never(
    example: Example, capsys: pytest.CaptureFixture[str]
) -> None:
    found = planned(example, capsys, "--windows", 50, "--tolerance", 0.06)
    assert found["tolerance"] == 0.06
    assert found["evidence_threshold"] == pytest.approx(math.log10(50 * 90 * 86400 / 300))
    change = [one["rules"][0] for one in found["drops"]]
    assert [one["median"]["records"] is None for one in change] == [True, True, False, False]
    assert "tolerance" in found["drops"][0]["cannot_detect"]
    assert found["drops"][3]["cannot_detect"] is None
    # Where records decide, not the half hour that a rule on a small window waits.
    for rules in (change, [one["rules"][3] for one in found["drops"]]):
        delays_ = [math.inf if one["median"]["records"] is None else one["median"]["records"] for one in rules]
        assert delays_ == sorted(delays_, reverse=True)
        assert all(one["median"]["records"] is None or one["median"]["seconds"] >= 300 for one in rules)
    # Records needed fall with the square of the tolerance.
    needed = found["labelled_records_needed"]
    assert needed["0.05"] / needed["0.1"] == pytest.approx(4.0, rel=0.05)


def test_the_table_is_the_same_again_and_says_what_cannot_be_detected(
    example: Example, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    texts = []
    for _ in range(2):
        assert main(words(example, "--tolerance", 0.06, "--plot", tmp_path / "plan.svg")) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1]
    assert "cannot detect a drop of 5 points: it is within the tolerance of 6 points" in texts[0]
    assert "    tolerance: 0.06\n    false_alarms: 1 per 90d\n" in texts[0]
    assert "drop of 20 points" in (tmp_path / "plan.svg").read_text(encoding="utf-8")


def test_a_tolerance_below_the_allowed_one_is_raised(example: Example, capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(example, capsys, "--tolerance", 0.001)
    assert found["smallest_tolerance"] <= found["tolerance"] < found["smallest_tolerance"] + 0.001
    assert main(words(example, "--tolerance", 0.001)) == 0
    assert "less than the reference allows" in capsys.readouterr().out


def test_an_own_stream_is_replayed_in_its_order(example: Example, capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(example, capsys, "--history", example.site_b)["history"]
    # Site B is far below the reference: as it is, it alarms at once.
    assert found["alarms_after_records"][0] <= 700
    healthy = planned(example, capsys, "--history", example.site_a)["history"]
    assert healthy["alarms_after_records"] == []


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--rate", "2000", "--rate: expected a number per time"),
        ("--rate", "0/day", "--rate: expected a number per time"),
        ("--every", "soon", "--every: expected a duration"),
        ("--false-alarms", "90d", "--false-alarms: expected a number per duration"),
        ("--windows", "0", "--windows: expected a number from 1"),
        ("--tolerance", "2", "--tolerance: expected a share"),
        ("--tolerance", "nan", "--tolerance: expected a share"),
    ],
)
def test_bad_options_are_refused(
    example: Example, capsys: pytest.CaptureFixture[str], option: str, value: str, said: str
) -> None:
    assert main(words(example, option, value)) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"probs": [0.2, 0.3, 0.4, 0.1]}\n' * 20, "expected at least 100 records, found 20"),
        ('{"probs": [0.2, 9e999, 0.4, 0.1]}\n' * 200, "history.jsonl"),
        ("", "history.jsonl"),
    ],
)
def test_a_hostile_history_is_refused(
    example: Example, capsys: pytest.CaptureFixture[str], tmp_path: Path, content: str, said: str
) -> None:
    (tmp_path / "history.jsonl").write_text(content)
    assert main(words(example, "--history", tmp_path / "history.jsonl")) == 2
    assert said in capsys.readouterr().err


def test_an_older_reference_needs_a_history(
    example: Example, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    content = json.loads(example.reference.read_text().partition("\n")[2])
    del content["sample"]
    old = tmp_path / "old.ref"
    write_sealed(old, content)
    assert main(["plan", "--reference", str(old), *QUICK]) == 2
    assert "run `cpcmon calibrate` again, or give --history" in capsys.readouterr().err
    assert main(["plan", "--reference", str(old), *QUICK, "--history", str(example.site_a)]) == 0


def setup_of(members: MemberValues, tolerance: float = 0.03) -> Setup:
    return Setup(60.0, 1.0, 1, 90 * 86400.0, max(tolerance, members.smallest_tolerance))


def test_replays_have_the_evidence_of_the_daemon(example: Example) -> None:
    reference = Reference.load(example.reference)
    members, known = MemberValues(reference.calibration), Known(reference)
    setup, random = setup_of(members), np.random.default_rng(1)
    drawn = known.draw(known.shares, 1, 0, 3_000, random)[0]
    starts = np.sort(random.choice(np.arange(1, 3_000), 40, replace=False))
    starts = np.concatenate([[0], starts])
    runs = delays.Runs(members, setup, np.array([setup.tolerance]))
    logs = delays.logs_of(known.values, members, setup.tolerance)
    means = np.full((1, len(MEMBERS)), members.accuracy - setup.tolerance)
    table, evidence = EvidenceTable(members, [Detector()], lambda _: means), ChangeEvidence(1)
    row = table.row("all", 0.0)
    evidence.select(["all"])
    for start, end in zip(starts, [*starts[1:], 3_000], strict=True):
        rows = drawn[start:end]
        runs.alarms(np.array([len(rows)]), logs[rows].sum(axis=0)[None])
        table.add(known.values[:, rows], np.zeros(1, np.int64), np.full((1, 1), row), np.ones((1, 1), np.bool_))
        evidence.update(table.snapshot(["all"]), np.zeros(1))
        assert runs.evidence.value[0, 0] == evidence.value[0, 0]


def test_the_sample_of_a_reference_has_its_accuracy_and_falls_as_wanted(example: Example) -> None:
    reference = Reference.load(example.reference)
    known, accuracy = Known(reference), reference.calibration.accuracy
    assert known.values @ known.shares == pytest.approx(accuracy, abs=0.002)
    for drop in DROPS:
        weights = known.weights(drop)
        assert weights is not None
        assert weights[known.right].sum() == pytest.approx(accuracy - drop, abs=1e-6)


def test_a_history_keeps_its_order_in_blocks(example: Example) -> None:
    reference = Reference.load(example.reference)
    random = np.random.default_rng(1)
    probabilities = random.dirichlet([4, 1, 1, 1], 1_000)
    records = accept_array(probabilities, classes=reference.classes).records
    history = OwnStream(reference, records, "here")
    weights = history.weights(0.05)
    assert weights is not None
    drawn = history.draw(weights, 30, 100, 2_000, random)
    first, blocks = drawn[:, 100] // 50, drawn[:, 100:].reshape(30, -1, 50)
    assert np.array_equal(
        blocks // 50, np.broadcast_to((first[:, None] + np.arange(40))[:, :, None] % 20, blocks.shape)
    )
    assert np.all(np.diff(blocks, axis=2) >= 0)
    assert np.array_equal((drawn[:, 99] + 1) % 1_000, first * 50)
    adaptive = member_values(Gauge(reference.calibration, ()), records.vectors)[3]
    assert adaptive[drawn[:, 100:]].mean() == pytest.approx(adaptive.mean() - 0.05, abs=0.005)


def test_the_alert_that_is_printed_can_be_pasted(
    example: Example, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = planned(example, capsys, "--false-alarms", "2 per year", "--tolerance", 0.035)
    head = "storage: {path: state}\nsources: [{name: in, type: directory, path: in}]\nmodels:\n"
    alerts = "".join(f"    {line}\n" for line in found["alerts"].splitlines())
    (tmp_path / "config.yaml").write_text(f"{head}  - name: m\n    reference: m.ref\n{alerts}")
    (model,) = read_config(tmp_path / "config.yaml").models
    rule = next(one for one in model.alerts if one.kind is AlertType.CHANGE)
    assert (rule.tolerance, rule.false_alarm_seconds, rule.severity) == (0.035, 182.5 * 86400, Severity.CRITICAL)


def test_a_stream_that_wanders_asks_for_a_larger_tolerance(example: Example) -> None:
    reference = Reference.load(example.reference)
    members = MemberValues(reference.calibration)
    setup, probabilities = setup_of(members), np.random.default_rng(2).dirichlet([4, 1, 1, 1], 8_000)
    # Single records between evaluations: a slow change of the mean shows only in larger blocks.
    setup = replace(setup, records_per_second=1 / 60)
    order = np.argsort(probabilities.max(axis=1).reshape(80, 100), axis=1) + 100 * np.arange(80)[:, None]
    found = []
    for some in (probabilities, probabilities[order.ravel()]):
        stream = OwnStream(reference, accept_array(some, classes=reference.classes).records, "here")
        spread = stream.spread(members, setup)
        assert spread is not None
        found.append(spread)
    (independent, none), (clustered, wander) = found
    assert none < 0.01
    assert wander > 0.05
    assert clustered > independent
