"""Three real replicas in a consumer group, a real broker, and a real Prometheus that merges their estimates."""

import json
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from monitor.core.estimate import CONSENSUS, Estimate
from monitor.core.estimators.ensemble import MEMBERS, combine
from monitor.reference.reference import Reference
from tests.daemon.process import CLASSES, Process
from tests.daemon.process import running as replica_running
from tests.kafka.producing import Writer
from tests.kafka.topics import Topics, unique
from tests.prometheus.running import free_port, running
from tests.servers import real_server
from tests.strategies import Singles, synthetic

pytestmark = pytest.mark.slow

PARTITIONS = 8
MINIMUM = 2000
"""More than one replica has, fewer than all have."""
MOVES_WITH_THE_WINDOW = {f"{name}{scaled}" for name in ("cpc_ac", "cpc_ac_anchored") for scaled in ("", "_ts")}
HEARS_ONE_THAT_MOVES = {CONSENSUS}
PATIENCE_SECONDS = 150.0

CONFIG = """\
storage: {{path: state}}
sources:
  - name: stream
    type: kafka
    brokers: ["{bootstrap}"]
    group: {group}
    topics: [{topic}]
    start: earliest
    session_timeout: 6s
    commit_every: 0.5s
models:
  - name: density
    reference: {reference}
    window: {{records: 5000}}
    evaluate: {{every: 1s}}
    minimum_records: {minimum}
    alerts:
      - {{name: accuracy_low, below: 0.99, on: value, for: 0s}}
links: {{runbooks: https://runbooks.example/cpcmon}}
"""

PROMETHEUS = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [rules.yml]
scrape_configs:
  - job_name: cpcmon
    static_configs: [{{targets: {targets}}}]
"""


class QueriedPrometheus:
    """A running Prometheus."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1/query"

    def by_estimator(self, query: str) -> dict[str, float]:
        """Return the result of a query, by estimator."""
        with urllib.request.urlopen(f"{self._url}?{urllib.parse.urlencode({'query': query})}") as answer:  # noqa: S310
            found = json.load(answer)["data"]["result"]
        return {one["metric"].get("estimator", ""): float(one["value"][1]) for one in found}

    def merged_over(self, records: int) -> dict[str, float]:
        """Wait until the merged estimate covers a number of records in two successive queries; return it."""
        deadline, before = time.monotonic() + PATIENCE_SECONDS, None
        while True:
            counted = self.by_estimator("cpcmon:estimate_records")
            found = self.by_estimator("cpcmon:estimated_accuracy_ratio")
            if counted == {"": float(records)} and found and found == before:
                return found
            assert time.monotonic() < deadline, f"expected {records} records, found {counted} and {found}"
            before = found if counted == {"": float(records)} else None
            time.sleep(1.5)


def write(writer: Writer, vectors: Singles) -> None:
    """Write different records to each partition, many to the first and few to the last."""
    edges = (np.linspace(0.0, 1.0, PARTITIONS + 1) ** 1.5 * len(vectors)).astype(int)
    for partition in range(PARTITIONS):
        some = vectors[edges[partition] : edges[partition + 1]]
        writer.enqueue([json.dumps({"probs": [float(p) for p in row]}).encode() for row in some], partition)
    writer.flush()


def equals_the_oracle(found: dict[str, float], reference: Reference, vectors: Singles) -> None:
    """Compare the merged estimate with one computed from all records at once."""
    expected = reference.calibration.estimate(vectors).estimators
    assert found.keys() == expected.keys()
    for name, result in expected.items():
        assert isinstance(result, Estimate)
        if name not in MOVES_WITH_THE_WINDOW | HEARS_ONE_THAT_MOVES:
            # Fixed-point totals have a resolution of 2**-31.
            assert found[name] == pytest.approx(result.accuracy, abs=1e-9), name
    consensus, _ = combine(np.array([[found[member]] for member in MEMBERS]))
    assert found[CONSENSUS] == pytest.approx(consensus[0], rel=1e-12)


def test_the_merged_estimate_does_not_depend_on_the_assignment(kafka: Topics, tmp_path: Path) -> None:
    """No replica reaches the minimum alone. One replica leaves, and others rebuild its partitions from the log."""
    prometheus = real_server("prometheus")
    vectors, labels = synthetic(600, 3, seed=1, sharpness=2.0)
    reference = Reference.calibrate(vectors, labels, model="density", version="", classes=CLASSES)
    reference.save(tmp_path / "density.ref")
    poor, sure = synthetic(1500, 3, seed=2, sharpness=0.6)[0], synthetic(1500, 3, seed=3, sharpness=6.0)[0]
    records = np.concatenate([poor, sure])
    topic = kafka.create_topic(partitions=PARTITIONS)
    writer = Writer(kafka.bootstrap, topic)
    write(writer, records)
    group = unique("replicas")
    with ExitStack() as stack:
        replicas: list[Process] = []
        for name in "abc":
            config = tmp_path / name / "config.yaml"
            config.parent.mkdir()
            words = {"bootstrap": kafka.bootstrap, "group": group, "topic": topic, "minimum": MINIMUM}
            config.write_text(CONFIG.format(reference=tmp_path / "density.ref", **words))
            replicas.append(stack.enter_context(replica_running(config)))
        port = free_port()
        targets = json.dumps([replica.url.removeprefix("http://") for replica in replicas])
        (tmp_path / "prometheus.yml").write_text(PROMETHEUS.format(targets=targets))
        command: list[str | Path] = [
            sys.executable,
            "-m",
            "monitor",
            "rules",
            "--config.file",
            tmp_path / "a" / "config.yaml",
        ]
        subprocess.run([*command, "--output", tmp_path / "rules.yml"], check=True)
        stack.enter_context(
            running(
                f"http://127.0.0.1:{port}/-/ready", tmp_path / "prometheus.log", prometheus,
                "--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address=127.0.0.1:{port}",
            )
        )  # fmt: skip
        asked = QueriedPrometheus(port)
        equals_the_oracle(asked.merged_over(len(records)), reference, records)
        owners = asked.by_estimator("count(cpcmon_kafka_assigned_partitions > 0)")
        assert owners == {"": 3.0}
        shares = asked.by_estimator('max(cpcmon_window_records{segment="all"})')
        assert shares[""] < MINIMUM
        assert asked.by_estimator('count(ALERTS{alertname="CpcmonAccuracyLow",alertstate="firing"})') == {"": 1.0}

        assert replicas.pop().stop() == 0
        more = synthetic(400, 3, seed=4, sharpness=1.2)[0]
        write(writer, more)
        records = np.concatenate([records, more])
        equals_the_oracle(asked.merged_over(len(records)), reference, records)
        assert asked.by_estimator("sum(cpcmon_kafka_assigned_partitions)") == {"": float(PARTITIONS)}
