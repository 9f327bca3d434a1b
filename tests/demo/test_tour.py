"""`cpcmon demo --tour`: the offline commands."""

from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.cli import demo as tour
from monitor.cli import plot
from tests.conftest import Ran

pytestmark = pytest.mark.slow


def test_without_matplotlib_the_tour_skips_the_plot(
    cpcmon: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (tour, plot):
        monkeypatch.setattr(module, "find_spec", lambda _: None)
    ran = cpcmon("demo", "--tour", "--directory", tmp_path / "demo")
    assert ran.code == 0, ran.err
    assert ran.out.count("$ cpcmon ") == 6
    assert "install matplotlib" in ran.out
    assert not (tmp_path / "demo/site_b.html").exists()
    assert (tmp_path / "demo/density.ref").exists()
    assert "density site=B: 1,500 records, estimated accuracy" in ran.out
    assert cpcmon("check-config", tmp_path / "demo/tour.yaml").code == 0
