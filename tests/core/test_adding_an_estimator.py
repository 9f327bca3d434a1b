"""A new estimator needs one class and one line in the list."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import pytest

from monitor import Estimate, Reference, estimate
from monitor.core.estimators import ESTIMATORS, Member
from monitor.core.estimators.base import Line
from monitor.core.scores import Floats, LabelledOutputs, Scores
from monitor.core.totals import Gauge, totals_of
from monitor.testing.oracle import check_estimator
from tests.conftest import Ran
from tests.strategies import synthetic


@dataclass(frozen=True, slots=True)
class ConfidentShare:
    """Share of the window that is more confident than the mean of the reference; a toy."""

    returns_reference_accuracy: ClassVar[bool] = False

    cut: float
    doubled: bool = False

    @classmethod
    def calibrate(cls, reference: LabelledOutputs, *, scaled: bool) -> Self:
        """Keep the mean confidence."""
        return cls(float(reference.scores(scaled=scaled).confidence.mean()))

    def contributions(self, scores: Scores, mean_confidence: float | Floats) -> Floats:
        """Return whether each record is more confident."""
        del mean_confidence
        return (scores.confidence > self.cut).astype(np.float64)[None]

    def estimate(self, means: Floats, mean_confidence: Floats) -> Floats:
        """Return the share, or twice that."""
        del mean_confidence
        return np.asarray(means[0] * (2.0 if self.doubled else 1.0))


MEMBER = Member("confident_share", ConfidentShare, {"doubled": {"doubled": True}})


@pytest.fixture
def with_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of estimators with one more line."""
    for module in ("core.estimators.ensemble", "reference.reference", "cli.estimate_command", "cli.evaluate"):
        monkeypatch.setattr(f"monitor.{module}.ESTIMATORS", (*ESTIMATORS, MEMBER))


def test_the_shared_checks_run_on_a_new_estimator() -> None:
    check_estimator(MEMBER, *synthetic(50, 3, seed=1))


@pytest.mark.slow
@pytest.mark.usefixtures("with_the_line")
def test_a_new_estimator_is_in_references_commands_and_windows(tmp_path: Path, cpcmon: Callable[..., Ran]) -> None:
    """Both forms, with intervals."""
    probabilities, labels = synthetic(300, 3, seed=1)
    Reference.calibrate(probabilities, labels, model="m").save(tmp_path / "m.ref")
    reference = Reference.load(tmp_path / "m.ref")
    window, _ = synthetic(200, 3, seed=2)
    wanted = float((window.max(axis=1) > probabilities.max(axis=1).astype(np.float64).mean()).mean())
    found, running = (
        source["confident_share"]
        for source in (estimate(reference, window), totals_of(Gauge(reference.calibration), window).estimate())
    )
    assert isinstance(found, Estimate)
    assert isinstance(running, Estimate)
    assert found.accuracy == pytest.approx(wanted)
    assert running.accuracy == pytest.approx(wanted, abs=1e-9)
    assert found.interval is not None
    np.save(tmp_path / "w.npy", window)
    words = ("--reference", tmp_path / "m.ref", "--input", tmp_path / "w.npy")
    assert "\nconfident_share " in cpcmon("estimate", *words).out
    assert {"confident_share", "confident_share_ts"} <= set(
        json.loads(cpcmon("estimate", *words, "--output", "json").out)["estimators"]
    )
    np.savez(tmp_path / "l.npz", probs=probabilities, label=labels)
    assert (
        "\nconfident_share " in cpcmon("evaluate", "--source", tmp_path / "l.npz", "--target", tmp_path / "l.npz").out
    )


@dataclass(frozen=True, slots=True)
class Fickle(ConfidentShare):
    """Its contributions depend on the other records of the window, so totals cannot be subtracted."""

    def contributions(self, scores: Scores, mean_confidence: float | Floats) -> Floats:
        """Return whether each record is more confident than the window."""
        return (scores.confidence > mean_confidence).astype(np.float64)[None]


@dataclass(frozen=True, slots=True)
class Unbounded(ConfidentShare):
    """Its contributions overflow the totals."""

    def contributions(self, scores: Scores, mean_confidence: float | Floats) -> Floats:
        """Return large numbers."""
        del mean_confidence
        return scores.confidence[None] * 1e9


@dataclass(frozen=True, slots=True)
class Crooked(ConfidentShare):
    """Its line is another than its estimate."""

    def line(self) -> Line:
        """Return more."""
        return Line(accuracy=0.1)


@pytest.mark.parametrize(
    ("family", "claim"),
    [
        pytest.param(Crooked, "`line` must equal `estimate`", id="crooked"),
        pytest.param(Fickle, "must not depend on the confidence", id="moving"),
        pytest.param(Unbounded, "between 0 and 1", id="unbounded"),
    ],
)
def test_the_shared_checks_reject_a_member_that_windows_cannot_total(family: type[ConfidentShare], claim: str) -> None:
    """Offline it would work, and in a window it would be silently wrong."""
    with pytest.raises(AssertionError, match=claim):
        check_estimator(Member("faulty", family), *synthetic(50, 3, seed=1))
