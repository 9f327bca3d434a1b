"""The memory forecast of `check-config`, compared with the real process."""

from pathlib import Path

import pytest

from benchmarks.memory import measured

pytestmark = pytest.mark.slow


def test_the_forecast_is_within_20_percent_of_the_peak(tmp_path: Path) -> None:
    """With 100 full windows; `python -m benchmarks.memory` measures up to 2,000."""
    forecast, peak = measured(tmp_path, windows=100, records=500, classes=3, reference=600)
    assert 0.8 <= forecast / peak <= 1.2, f"forecast {forecast / 1e6:.0f} MB, peak {peak / 1e6:.0f} MB"
