"""How records reach the daemon: as files in a directory that it watches, or as messages of a topic."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from monitor.sources.kafka_feed import TopicFeed

TOPIC = "cpcmon-demo"


class Feed(Protocol):
    """Takes records to where the daemon reads them."""

    def send(self, records: Sequence[dict[str, Any]]) -> None:
        """Send some records."""

    def close(self) -> None:
        """Let go of everything."""


class DirectoryFeed:
    """Drops a file at a time, each complete when it gets its name. The daemon deletes what it has read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0

    def send(self, records: Sequence[dict[str, Any]]) -> None:
        """Write elsewhere, then rename: a reader sees all of the records or none."""
        self._number += 1
        temporary = self._folder / f".{self._number:08d}.jsonl.tmp"
        temporary.write_text("".join(json.dumps(one) + "\n" for one in records), encoding="utf-8")
        temporary.rename(self._folder / f"{self._number:08d}.jsonl")

    def close(self) -> None:
        """Nothing is held."""


class KafkaFeed:
    """Sends a message a record."""

    def __init__(self, broker: str) -> None:
        self._topic = TopicFeed(broker, TOPIC)

    def send(self, records: Sequence[dict[str, Any]]) -> None:
        """Send them."""
        self._topic.send([json.dumps(one).encode() for one in records])

    def close(self) -> None:
        """Send what is left."""
        self._topic.close()
