"""A feature fails at one site: the drift of the outputs shows it, and the estimate does not."""

from pathlib import Path

import pytest

from monitor.core.estimate import ADAPTIVE, CONSENSUS
from tests.evaluation.faults import WINDOW, watch_fault


def test_class_mix_shows_a_missing_feature_within_a_window_and_the_estimate_does_not(tmp_path: Path) -> None:
    """Against the first records of each site. Labels would have shown a fall by more than ten points."""
    seen = watch_fault(tmp_path, "missing", labelled=False)
    assert seen.before.accuracy - seen.after.accuracy > 0.10
    assert seen.after.shares[-1] == 0.0 < seen.before.shares[-1]
    for name in (ADAPTIVE, CONSENSUS):
        assert seen.after.estimates[name] > seen.before.estimates[name] - 0.01
    assert set(seen.fired) == {"outputs_drifted", "disagreement"}
    assert seen.drifted["class_mix"] < seen.fired["outputs_drifted"] <= WINDOW
    assert not seen.elsewhere


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "alerts"), [("healthy", set()), ("constant", {"outputs_drifted", "disagreement"}), ("permuted", set())]
)
def test_what_other_faults_show(tmp_path: Path, fault: str, alerts: set[str]) -> None:
    """Nothing shows features that were joined with the wrong records: the outputs are as before."""
    seen = watch_fault(tmp_path, fault, labelled=True)
    assert (seen.before.accuracy - seen.after.accuracy > 0.10) == (fault != "healthy")
    assert set(seen.fired) == alerts
    assert not seen.elsewhere
