"""Brokers, and members that are closed at the end."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from monitor.sources.kafka.kafka_options import KafkaOptions, Start
from tests.kafka.conftest import (
    collected_sockets,
    kafka,
    mock_kafka,
    real_kafka,
    run_folder,
    secured_kafka,
)
from tests.kafka.topics import unique
from tests.sources.kafka.member import Disk, Member

__all__ = [
    "collected_sockets",
    "join",
    "kafka",
    "mock_kafka",
    "real_kafka",
    "run_folder",
    "secured_kafka",
]

Join = Callable[..., Member]


@pytest.fixture
def join() -> Iterator[Join]:
    """Join a group with these options."""
    members: list[Member] = []

    def make(
        bootstrap: str, topic: str, group: str = "", *, disk: Disk | None = None, hold: int | None = None, **more: Any
    ) -> Member:
        inner = {name: more.pop(name) for name in ("decoder", "fingerprint", "monotonic") if name in more}
        settings: dict[str, Any] = {"start": Start.EARLIEST, "session_timeout_seconds": 6.0, "commit_seconds": 0.2}
        settings |= {"topics": (topic,)} if "pattern" not in more else {}
        options = KafkaOptions((bootstrap,), group or unique("group"), **settings | more)
        members.append(Member(options, disk, hold=hold, **inner))
        return members[-1]

    yield make
    for member in members:
        member.source.close()
    # An abandoned attempt goes on for some seconds, and would disturb the next test.
    for thread in threading.enumerate():
        if thread.name == "kafka-connect":
            thread.join(30.0)
