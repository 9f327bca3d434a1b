"""A site that reads a Kafka topic, and its expected estimates."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice

import numpy as np
import pytest

from monitor.testing.oracle import Oracle
from tests.daemon.conftest import Site
from tests.daemon.process import LIMIT, Process, one
from tests.kafka.producing import Truth, Writer
from tests.kafka.topics import Topics, unique
from tests.strategies import Singles
from tests.waiting import wait_until

SOURCE = """\
  - name: {name}
    type: kafka
    brokers: [{bootstrap}]
    group: {group}
    topics: [{topic}]
    start: earliest
    session_timeout: 6s
    commit_every: 1s
{more}
"""
_FILES = "  - {name: results, type: directory, path: inbox, poll: 0.2s}\n"
ESTIMATORS = 20


@dataclass
class KafkaSite:
    """A site whose records come from a topic."""

    site: Site
    bootstrap: str
    topic: str
    window: int = 300
    group: str = field(default_factory=lambda: unique("cpcmon"))

    def configure(self, more: str = "", *, files: bool = False, minimum: int = 50) -> None:
        """Write the configuration; `more` is YAML of the source, indented by four spaces."""
        # The oracle knows all estimators.
        self.site.configure(window=self.window, minimum=minimum, more="metrics: {segments: all}")
        source = SOURCE.format(name="stream", bootstrap=self.bootstrap, group=self.group, topic=self.topic, more=more)
        text = self.site.config.read_text("utf-8")
        assert _FILES in text
        self.site.config.write_text(text.replace(_FILES, source + (_FILES if files else "")), encoding="utf-8")

    def oracle(self) -> Oracle:
        """Return the oracle for the site's reference."""
        return Oracle(self.site.reference_vectors.tolist(), self.site.labels.tolist(), self.site.temperature)

    def expected_vectors(self, truth: Truth, where: Mapping[str, str] | None = None) -> list[list[float]]:
        """Return the vectors that the windows must hold: the latest of each partition, for all records or a segment."""
        found = list[list[float]]()
        for payloads in truth.values():
            records = [json.loads(payloads[offset] or b"") for offset in sorted(payloads)]
            flat = [one for record in records for one in (record if isinstance(record, list) else [record])]
            chosen = [one for one in flat if all(one.get(key) == value for key, value in (where or {}).items())]
            # Windows hold 32-bit floats.
            found.extend(np.asarray([one["probs"] for one in chosen[-self.window :]], np.float32).tolist())
        return found


def payloads(vectors: Singles, sites: Sequence[str] = ("A", "B", "C"), start: int = 0) -> list[bytes]:
    """Return messages of one record each, with unique ids and times a millisecond apart, an hour ago."""
    began = time.time() - 3600.0
    return [
        json.dumps(
            {
                "id": f"r{start + number}",
                "time": began + (start + number) / 1000.0,
                "site": site,
                "probs": [float(p) for p in vector],
            }
        ).encode()
        for number, (vector, site) in enumerate(zip(vectors, islice(cycle(sites), len(vectors)), strict=True))
    ]


def produce(broker: Topics, topic: str, partitions: int, messages: Sequence[bytes]) -> Truth:
    """Write messages to the partitions in turn; return the content of the topic."""
    writer = Writer(broker.bootstrap, topic)
    for partition in range(partitions):
        writer.enqueue(messages[partition::partitions], partition)
    writer.flush()
    return writer.truth


def records_read(count: int) -> tuple[str, float]:
    """Return the counter of records read from the topic, with its expected value."""
    return 'cpcmon_records_total{model="density",source="stream"}', float(count)


def window_records(count: int, segment: str = "all") -> tuple[str, float]:
    """Return the gauge of records in a window, with its expected value."""
    return f'cpcmon_window_records{{model="density",segment="{segment}"}}', float(count)


def wait_for_evaluation(process: Process, count: int) -> dict[str, float]:
    """Wait until so many records were read and evaluated; return all samples."""
    process.wait_for(*records_read(count))
    name = 'cpcmon_evaluations_total{model="density"}'
    # The next evaluation may have started before the last record was read.
    wanted = process.metrics()[name] + 2.0
    return process.wait_until(lambda page: page[name] >= wanted, "evaluations")


def assert_matches_oracle(page: Mapping[str, float], segment: str, expected: Mapping[str, float]) -> None:
    """Compare every exported estimate of a window and the disagreement."""
    exported = {
        found.group(1): value
        for key, value in page.items()
        if key.startswith("cpcmon_estimated_accuracy_ratio{")
        and f'segment="{segment}"' in key
        and (found := re.search(r'estimator="([^"]+)"', key))
    }
    assert len(exported) == ESTIMATORS
    assert exported == pytest.approx({name: expected[name] for name in exported}, abs=1e-9)
    disagreement = one(dict(page), "cpcmon_estimator_disagreement_ratio", segment=segment)
    assert disagreement == pytest.approx(expected["disagreement"], abs=1e-9)


def wait_until_not_ready(process: Process, reason: str) -> str:
    """Wait until `/-/ready` gives a reason, while `/-/healthy` is 200; return the body."""

    def not_ready() -> str | None:
        code, body = process.ask("/-/ready")
        return body if code == 503 and reason in body else None

    found = wait_until(not_ready, lambda: f"{process.ask('/-/ready')}\n{process.log}", every=0.1)
    assert process.ask("/-/healthy")[0] == 200
    return found


def wait_for_reconnect(process: Process, series: tuple[str, float]) -> None:
    """Wait for a value; attempts to connect are up to 30 seconds apart."""
    name, value = series
    process.wait_until(lambda page: page.get(name) == value, f"{name} to be {value}", 4 * LIMIT)


def all_output(process: Process) -> str:
    """Return the log and all pages of a process."""
    return "\n".join([process.log, *(process.ask(path)[1] for path in ("/metrics", "/api/v1/status", "/", "/-/ready"))])
