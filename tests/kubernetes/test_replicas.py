"""Two pods of the replicas overlay, as real daemons and static members on a real broker with TLS and SCRAM."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.daemon.kafka_site import payloads, produce
from tests.daemon.process import Process, running
from tests.kafka.shared import SecuredBroker
from tests.kafka.topics import unique
from tests.kubernetes.pod import PodFolders
from tests.kubernetes.rendering import Renderer
from tests.strategies import synthetic

pytestmark = pytest.mark.slow

LIMIT_SECONDS = 90
PARTITIONS = 4
RECORDS = synthetic(400, 3, seed=5, sharpness=2.6)[0]


def test_pods_share_a_topic_as_static_members(render: Renderer, secured_kafka: SecuredBroker, tmp_path: Path) -> None:
    """With one configuration: the name comes from a file that Kubernetes writes."""
    topic, group = secured_kafka.create_topic(partitions=PARTITIONS), unique("replicas")
    files = [
        _installed(render, secured_kafka, tmp_path / name, name, topic, group) for name in ("cpcmon-0", "cpcmon-1")
    ]
    with running(files[0]) as first, running(files[1]) as second:
        _until(lambda: _partitions(first) == _partitions(second) == PARTITIONS / 2, first, second)
        produce(secured_kafka, topic, PARTITIONS, payloads(RECORDS))
        _until(lambda: _records(first) + _records(second) == len(RECORDS), first, second)
        assert _records(first) > 0 < _records(second)
        admin = AdminClient({"bootstrap.servers": secured_kafka.bootstrap})
        members = admin.describe_consumer_groups([group])[group].result(LIMIT_SECONDS).members
        assert {member.group_instance_id for member in members} == {"cpcmon-0", "cpcmon-1"}


def _installed(render: Renderer, broker: SecuredBroker, root: Path, name: str, topic: str, group: str) -> Path:
    """Write the configuration of a pod, with the broker, its secrets and a topic."""
    pod = PodFolders(render.documents("kustomize", "replicas"), root, name)
    (pod.named("secrets") / "kafka-ca.pem").write_bytes(Path(broker.security.authority).read_bytes())
    (pod.named("secrets") / "kafka-password").write_text(broker.security.password)
    file = pod.write_configuration_for_here()
    text = file.read_text(encoding="utf-8")
    for there, here in (
        ("kafka-bootstrap.kafka:9093", broker.addresses["SASL_SSL"]),
        ("group: cpcmon", f"group: {group}"),
        ("[predictions]", f"[{topic}]"),
        ("user: cpcmon", f"user: {broker.security.user}"),
        # Records from before the assignment count too, and are evaluated at once.
        ("topics:", "start: earliest\n    topics:"),
        ("    segment_by", "    evaluate: {every: 1s}\n    segment_by"),
    ):
        assert text.count(there) == 1, there
        text = text.replace(there, here)
    file.write_text(text, encoding="utf-8")
    return file


def _partitions(process: Process) -> float:
    return process.metrics().get('cpcmon_kafka_assigned_partitions{source="stream"}', 0)


def _records(process: Process) -> float:
    return process.metrics().get('cpcmon_window_records{model="density",segment="all"}', 0)


def _until(holds: Callable[[], bool], *processes: Process) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "\n\n".join(process.log for process in processes)
        time.sleep(0.2)
