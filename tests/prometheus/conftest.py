"""Where the real promtool is found."""

from pathlib import Path

import pytest

from tests.servers import real_server


@pytest.fixture
def promtool() -> Path:
    """The tool that checks metrics, rules and alerts as Prometheus itself would."""
    return Path(real_server("promtool"))
