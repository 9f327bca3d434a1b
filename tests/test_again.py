"""Which failures are run once more."""

import pytest

from tests.again import may_run_again


@pytest.mark.parametrize(
    ("failed", "again"),
    [
        ([], False),
        (["tests/daemon/test_kafka_doors.py::test_a"], True),
        (["tests/kafka/test_security.py::test_a", "tests/web/test_pages.py::test_b[x]"], True),
        (["tests/kafka/replicas/test_faults.py::test_a"], False),
        (["tests/core/test_window.py::test_a"], False),
        (["tests/daemon/test_kafka.py::test_a"], False),
        (["tests/sources/kafka/test_kafka_group.py::test_a"], False),
        (["tests/systemd/test_unit.py::test_a"], False),
        (["tests/web/test_pages.py::test_a", "tests/state/test_kill.py::test_b"], False),
        ([f"tests/web/test_pages.py::test_{number}" for number in range(6)], False),
    ],
)
def test_only_a_few_that_wait_for_servers_have_a_second_chance(failed: list[str], again: bool) -> None:  # noqa: FBT001
    assert may_run_again(failed) == again
