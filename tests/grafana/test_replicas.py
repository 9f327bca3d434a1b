"""The Kafka row, and the others for a shared model: a real broker, two daemons, a real Prometheus."""

import json
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from monitor.reference.reference import Reference
from tests.daemon.process import CLASSES, running
from tests.grafana.dashboard import collapsed_panels, open_panels, queries
from tests.grafana.prometheus_server import prometheus, wait_until_nothing_is_missing
from tests.kafka.producing import Writer
from tests.kafka.topics import Topics, unique
from tests.strategies import synthetic

pytestmark = pytest.mark.slow

_RULES = Path(__file__).resolve().parents[2] / "deploy" / "prometheus" / "cpcmon.rules.yml"
_PARTITIONS = 4
_CONFIG = """\
storage: {{path: state{number}}}
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
    reference: density.ref
    window: {{records: 5000}}
    evaluate: {{every: 1s}}
    minimum_records: 50
    alerts:
      - {{name: accuracy_low, below: 0.5}}
"""
_VALUES = {
    "job": "cpcmon",
    "instance": ".+",
    "model": "density",
    "segment": "all",
    "estimator": "adaptive",
    "__rate_interval": "20s",
    "__range": "5m",
}


def test_replicas_are_shown_separately_and_their_model_once(kafka: Topics, tmp_path: Path) -> None:
    """Every query of the row returns data with the labels of its legend; the stat is the merged estimate."""
    vectors, labels = synthetic(600, 3, seed=1, sharpness=2.6)
    Reference.calibrate(vectors, labels, model="density", version="", classes=CLASSES).save(tmp_path / "density.ref")
    topic, group = kafka.create_topic(partitions=_PARTITIONS), unique("cpcmon")
    writer = Writer(kafka.bootstrap, topic)

    def write() -> None:
        for partition in range(_PARTITIONS):
            some = synthetic(60, 3, seed=partition, sharpness=2.6)[0]
            writer.enqueue([json.dumps({"probs": [float(p) for p in row]}).encode() for row in some], partition)
        writer.flush()

    with ExitStack() as stack:
        write()
        targets = []
        for number in (1, 2):
            text = _CONFIG.format(number=number, bootstrap=kafka.bootstrap, group=group, topic=topic)
            (tmp_path / f"config{number}.yaml").write_text(text)
            replica = stack.enter_context(running(tmp_path / f"config{number}.yaml"))
            targets.append(replica.url.removeprefix("http://"))
        server = stack.enter_context(prometheus(tmp_path, {"cpcmon": targets}, _RULES.read_text()))
        # Nothing is lost here: without the condition that leaves out what is 0.
        asked = [
            replace(one, expression=one.expression.replace(" > 0", " >= 0"))
            for one in queries(*collapsed_panels("Kafka"))
        ]
        (shares,) = (one for one in queries(*collapsed_panels("Kafka")) if one.ref == "share")
        (stats,) = (one for one in open_panels() if one["title"] == "Worst window of each model")

        def missing() -> list[str]:
            found = [problem for one in asked if (problem := server.problem(one, _VALUES))]
            shown = {labels["instance"] for labels, _ in server.answer(shares, _VALUES)}
            models = [labels for one in queries(stats) for labels, _ in server.answer(one, _VALUES)]
            if shown != set(targets):
                found.append(f"expected shares of {targets}, found {shown}")
            # Both replicas have enough records for an estimate of their own, and the model is still shown once.
            if [labels.get("instance") for labels in models] != [None]:
                found.append(f"expected one stat, of all replicas together, found {models}")
            return found

        wait_until_nothing_is_missing(missing, write)
