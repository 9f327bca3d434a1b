"""Where the real promtool is found, and brokers for the test that needs one."""

from pathlib import Path

import pytest

from tests.kafka.conftest import kafka, real_kafka, run_folder, secured_kafka
from tests.servers import real_server

__all__ = ["kafka", "promtool", "real_kafka", "run_folder", "secured_kafka"]


@pytest.fixture
def promtool() -> Path:
    """The tool that checks metrics, rules and alerts as Prometheus itself would."""
    return Path(real_server("promtool"))
