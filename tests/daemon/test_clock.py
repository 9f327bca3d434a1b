"""The real process on a machine whose wall clock is set: `time.time` of the process adds what a file says."""

import json
from pathlib import Path

import pytest

from tests.daemon.conftest import Site
from tests.daemon.process import running, write_records
from tests.strategies import synthetic

pytestmark = pytest.mark.slow

VECTORS = synthetic(700, 3, seed=5, sharpness=2.6)[0]
RECORDS = 'cpcmon_window_records{model="density",segment="all"}'
TEN_YEARS = 10 * 365 * 86_400
SHIFTED = """\
import pathlib, time

_now, _ahead = time.time, pathlib.Path(__file__).with_name("ahead")
time.time = lambda: _now() + float((_ahead.read_text() if _ahead.exists() else "") or 0.0)
"""


def test_e11_a_clock_ten_years_ahead_for_seconds_evicts_nothing_by_age(site: Site, tmp_path: Path) -> None:
    """Though records without a time of their own come meanwhile; and all who look at cpcmon can see the jump."""
    site.config.write_text(site.config.read_text().replace("{records: 300}", "{records: 1000, age: 1d}"))
    folder = tmp_path / "shifted"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SHIFTED)
    ahead = folder / "ahead"
    with running(site.config, environment={"PYTHONPATH": str(folder)}) as process:
        write_records(site.inbox / "a.jsonl", VECTORS[:500])
        process.wait_for(RECORDS, 500.0)
        ahead.write_text(str(TEN_YEARS))
        process.wait_for("cpcmon_clock_jumps_total", 1.0)
        write_records(site.inbox / "a.jsonl", VECTORS[500:600])
        process.wait_for(RECORDS, 600.0)
        status = json.loads(process.ask("/api/v1/status")[1])
        assert status["ready"]
        assert [one for one in status["problems"] if one.startswith("clock jumped")]
        assert "clock jumped" in process.ask("/")[1]
        ahead.unlink()
        process.wait_for("cpcmon_clock_jumps_total", 2.0)
        write_records(site.inbox / "a.jsonl", VECTORS[600:])
        page = process.wait_for(RECORDS, 700.0)
        assert page['cpcmon_records_evicted_total{model="density"}'] == 0.0
        assert json.loads(process.ask("/api/v1/status")[1])["problems"] == []
    assert "is back" in process.log
