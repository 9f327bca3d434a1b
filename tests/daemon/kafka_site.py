"""An installation that reads a topic, and the answers that the slow oracle gives for what lies in it."""

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

_SOURCE = """\
  - name: stream
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
ESTIMATORS = 19


@dataclass
class KafkaSite:
    """A site whose records come from a topic."""

    site: Site
    bootstrap: str
    topic: str
    window: int = 300
    group: str = field(default_factory=lambda: unique("cpcmon"))

    def configure(self, more: str = "", *, files: bool = False, minimum: int = 50) -> None:
        """Write the configuration; more settings of the source as YAML of four spaces."""
        self.site.configure(window=self.window, minimum=minimum)
        source = _SOURCE.format(bootstrap=self.bootstrap, group=self.group, topic=self.topic, more=more)
        text = self.site.config.read_text("utf-8")
        assert _FILES in text
        self.site.config.write_text(text.replace(_FILES, source + (_FILES if files else "")), encoding="utf-8")

    def oracle(self) -> Oracle:
        """Return what answers slowly and plainly."""
        return Oracle(self.site.reference_vectors.tolist(), self.site.labels.tolist(), self.site.temperature)

    def held(self, truth: Truth, where: Mapping[str, str] | None = None) -> list[list[float]]:
        """Return the outputs that windows should hold: the latest of each partition, all or those of a segment."""
        found = list[list[float]]()
        for payloads in truth.values():
            records = [json.loads(payloads[offset] or b"") for offset in sorted(payloads)]
            flat = [one for record in records for one in (record if isinstance(record, list) else [record])]
            chosen = [one for one in flat if all(one.get(key) == value for key, value in (where or {}).items())]
            # As 32-bit numbers, which is what windows hold.
            found.extend(np.asarray([one["probs"] for one in chosen[-self.window :]], np.float32).tolist())
        return found


def payloads(vectors: Singles, sites: Sequence[str] = ("A", "B", "C"), start: int = 0) -> list[bytes]:
    """Return messages of one record each, a millisecond apart and an hour ago, with ids of their own."""
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


def written(broker: Topics, topic: str, partitions: int, messages: Sequence[bytes]) -> Truth:
    """Write messages to the partitions in turn, and return what lies there."""
    writer = Writer(broker.bootstrap, topic)
    for partition in range(partitions):
        writer.enqueue(messages[partition::partitions], partition)
    writer.flush()
    return writer.truth


def taken(count: int) -> tuple[str, float]:
    """Name the series that says how many records were taken from the topic, with the number."""
    return 'cpcmon_records_total{model="density",source="stream"}', float(count)


def holds(count: int, segment: str = "all") -> tuple[str, float]:
    """Name the series that says how many records a window holds, with the number."""
    return f'cpcmon_window_records{{model="density",segment="{segment}"}}', float(count)


def judged(process: Process, count: int) -> dict[str, float]:
    """Wait until so many records were taken, and then for an evaluation that began afterwards; return its page."""
    process.wait_for(*taken(count))
    name = 'cpcmon_evaluations_total{model="density"}'
    # The next one may have begun before the last record came.
    wanted = process.metrics()[name] + 2.0
    deadline = time.monotonic() + LIMIT
    while (page := process.metrics())[name] < wanted:
        assert time.monotonic() < deadline, process.log
        time.sleep(0.1)
    return page


def assert_equals_the_oracle(page: Mapping[str, float], segment: str, expected: Mapping[str, float]) -> None:
    """Compare every exported estimate of a window, and the disagreement."""
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


def wait_until_not_ready(process: Process, sentence: str) -> str:
    """Wait until `/-/ready` says why it is not, while `/-/healthy` says that it lives; return all that it says."""
    deadline = time.monotonic() + 60.0
    while True:
        code, body = process.ask("/-/ready")
        if code == 503 and sentence in body:
            assert process.ask("/-/healthy")[0] == 200
            return body
        assert time.monotonic() < deadline, f"{code} {body}\n{process.log}"
        time.sleep(0.1)


def wait_for_longer(process: Process, series: tuple[str, float]) -> None:
    """Wait for longer than usual: attempts to connect are up to half a minute apart."""
    deadline = time.monotonic() + 4 * LIMIT
    name, value = series
    while process.metrics().get(name) != value:
        assert time.monotonic() < deadline, process.log
        time.sleep(0.2)


def everything_said(process: Process) -> str:
    """Return all that anybody can read of a process."""
    return "\n".join([process.log, *(process.ask(path)[1] for path in ("/metrics", "/api/v1/status", "/", "/-/ready"))])
