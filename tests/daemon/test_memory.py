"""What `check-config` forecasts is what the real process takes."""

from pathlib import Path

import pytest

from benchmarks.memory import measured

pytestmark = pytest.mark.slow


def test_the_forecast_is_within_a_fifth_of_the_peak_of_the_process(tmp_path: Path) -> None:
    """Forty full windows, ids and evaluations among it; `python -m benchmarks.memory` measures up to two thousand."""
    forecast, peak = measured(tmp_path, windows=40, records=500, classes=3, reference=600)
    assert 0.8 <= forecast / peak <= 1.2, f"forecast {forecast / 1e6:.0f} MB, peak {peak / 1e6:.0f} MB"
