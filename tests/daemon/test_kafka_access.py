"""Brokers that are down, or refuse a login or a request: the real process reports it and recovers."""

import signal
from pathlib import Path

import pytest
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._resource import ResourceType

from tests.daemon.conftest import Site
from tests.daemon.kafka_site import (
    SOURCE,
    KafkaSite,
    all_output,
    payloads,
    produce,
    records_read,
    wait_for_reconnect,
    wait_until_not_ready,
    window_records,
)
from tests.daemon.process import Process, one, running
from tests.kafka.broker import Cluster
from tests.kafka.shared import SecuredBroker
from tests.kafka.topics import unique
from tests.strategies import synthetic

pytestmark = pytest.mark.slow

VECTORS = synthetic(300, 3, seed=5, sharpness=2.6)[0]
WRONG = "ZZWRONG-password"
OTHER = "another-user"


def _configure(site: Site, broker: SecuredBroker, listener: str, more: str) -> None:
    topic = broker.create_topic()
    produce(broker, topic, 1, payloads(VECTORS[:100]))
    KafkaSite(site, broker.addresses[listener], topic).configure(more)


def _secret(folder: Path, content: str) -> Path:
    path = folder / "password"
    path.touch(mode=0o600)
    path.write_text(content + "\n")
    return path


def _scram(broker: SecuredBroker, password_file: Path, mechanism: str) -> str:
    sasl = f"    sasl: {{mechanism: {mechanism}, user: {broker.security.user}, password_file: {password_file}}}\n"
    return f"{sasl}    tls: {{ca: {broker.security.authority}}}"


def test_a_refused_client_certificate_is_reported(site: Site, secured_kafka: SecuredBroker) -> None:
    security = secured_kafka.security
    own = f", cert: {security.untrusted.cert}, key: {security.untrusted.key}"
    _configure(site, secured_kafka, "SSL", f"    tls: {{ca: {security.authority}{own}}}")
    with running(site.config) as process:
        body = wait_until_not_ready(process, f"stream kafka {secured_kafka.addresses['SSL']}: expected ")
        wait_until_not_ready(process, "certificate")
        assert "; retrying every " in body
        process.wait_for_line("certificate")
        assert process.stop() == 0


def test_d2_a_wrong_password_is_reported_without_it_and_a_reload_reads_the_right_one(
    site: Site, secured_kafka: SecuredBroker
) -> None:
    """Neither password is exposed, even at log level debug."""
    password = _secret(site.folder, WRONG)
    _configure(site, secured_kafka, "SASL_SSL", _scram(secured_kafka, password, "SCRAM-SHA-512"))
    message = (
        f"stream kafka {secured_kafka.addresses['SASL_SSL']}: expected to be authenticated as user cpcmon by SCRAM-SHA-512,"
        " found a refusal"
    )
    with running(site.config, "--log.level", "debug") as process:
        body = wait_until_not_ready(process, message)
        assert f"check the password in '{password}', and whether the broker offers SCRAM-SHA-512" in body
        process.wait_for_line("found a refusal")
        page = process.metrics()
        assert one(page, "cpcmon_source_ready", source="stream") == 0.0
        assert one(page, "cpcmon_source_events_total", source="stream", event="errors_authentication") == 1.0
        _secret(site.folder, secured_kafka.security.password)
        process.send_signal(signal.SIGHUP)
        process.wait_for(*records_read(100))
        process.wait_for('cpcmon_source_ready{source="stream"}', 1.0)
        output = all_output(process)
        assert process.stop() == 0
    for secret in (WRONG, secured_kafka.security.password):
        assert secret not in output + process.log


def test_a_missing_password_file_exits_with_2(site: Site, secured_kafka: SecuredBroker) -> None:
    _configure(site, secured_kafka, "SASL_SSL", _scram(secured_kafka, site.folder / "absent", "SCRAM-SHA-256"))
    process = Process(site.config)
    assert process.end() == 2
    assert "sources[0].sasl.password_file: expected a file with a password, found No such file" in process.log


def test_a_broker_that_is_down_is_waited_for(
    site: Site,
    real_kafka: None,  # noqa: ARG001, a condition
) -> None:
    """At the start and later; windows are kept until the session has expired."""
    with Cluster(site.folder / "broker") as cluster:
        topic = cluster.create_topic()
        kafka_site = KafkaSite(site, cluster.bootstrap, topic)
        kafka_site.configure()
        messages = payloads(VECTORS)
        produce(cluster, topic, 1, messages[:100])
        cluster.kill(1)
        with running(site.config) as process:
            message = f"kafka {cluster.bootstrap}: expected a broker to answer, found connection refused"
            wait_until_not_ready(process, message)
            process.wait_for_line(message)
            cluster.restart(1)
            wait_for_reconnect(process, records_read(100))
            process.wait_for('cpcmon_source_ready{source="stream"}', 1.0)
            cluster.kill(1)
            wait_until_not_ready(process, f"kafka {cluster.bootstrap}: expected ")
            page = process.metrics()
            assert one(page, "cpcmon_window_records", segment="all") == 100.0
            assert one(page, "cpcmon_source_ready", source="stream") == 0.0
            # After the session the group may have assigned its partitions to another process.
            process.wait_for('cpcmon_kafka_assigned_partitions{source="stream"}', 0.0)
            process.wait_for('cpcmon_window_state{model="density",segment="all",state="catching_up"}', 1.0)
            cluster.restart(1)
            produce(cluster, topic, 1, messages[100:])
            wait_for_reconnect(process, records_read(300))
            process.wait_for_line("connection restored")
            process.wait_for('cpcmon_source_ready{source="stream"}', 1.0)
            process.wait_for(*window_records(300))
            assert process.stop() == 0


@pytest.fixture
def kafka_site(site: Site, secured_kafka: SecuredBroker) -> KafkaSite:
    """A site that reads 100 records as a SASL user."""
    topic = secured_kafka.create_topic()
    produce(secured_kafka, topic, 1, payloads(VECTORS[:100]))
    return KafkaSite(site, secured_kafka.addresses["SASL_PLAINTEXT"], topic)


def _plain_sasl(folder: Path, broker: SecuredBroker) -> str:
    path = folder / "password"
    path.touch(mode=0o600)
    path.write_text(broker.security.password)
    return f"    sasl: {{mechanism: SCRAM-SHA-256, user: {broker.security.user}, password_file: {path}}}\n"


def test_forbidden_topics_and_groups_are_reported_and_read_once_allowed(
    site: Site, secured_kafka: SecuredBroker, kafka_site: KafkaSite
) -> None:
    """One source may do nothing with its topic, one only describe it, and one may not use its group."""
    user, password = secured_kafka.security.user, _plain_sasl(site.folder, secured_kafka)
    topics = {name: secured_kafka.create_topic() for name in ("nothing", "describe", "group")}
    groups = {name: unique(name) for name in topics}
    for name in ("nothing", "describe"):
        secured_kafka.allow(ResourceType.TOPIC, topics[name], OTHER, AclOperation.ALL)
    secured_kafka.allow(ResourceType.TOPIC, topics["describe"], user, AclOperation.DESCRIBE)
    secured_kafka.allow(ResourceType.GROUP, groups["group"], OTHER, AclOperation.ALL)
    for topic in topics.values():
        produce(secured_kafka, topic, 1, payloads(VECTORS[:100]))
    kafka_site.configure(
        password
        + "".join(
            SOURCE.format(name=name, bootstrap=kafka_site.bootstrap, group=groups[name], topic=topic, more=password)
            for name, topic in topics.items()
        )
    )
    with running(site.config) as process:
        for name in ("nothing", "describe"):
            message = f"expected to be allowed to read topic {topics[name]}, found a refusal"
            body = wait_until_not_ready(process, message)
            process.wait_for_line(message)
        assert f"grant Read and Describe on it to user {user} by SCRAM-SHA-256" in body
        body = wait_until_not_ready(process, f"expected to be allowed to use group {groups['group']}, found a refusal")
        assert f"grant Read on the group to user {user} by SCRAM-SHA-256" in body
        page = process.wait_for(*records_read(100))
        for name in topics:
            assert one(page, "cpcmon_source_ready", source=name) == 0.0
            assert (one(page, "cpcmon_source_events_total", source=name, event="errors_authorization") or 0.0) >= 1.0
        for name in ("nothing", "describe"):
            secured_kafka.allow(ResourceType.TOPIC, topics[name], user, AclOperation.READ, AclOperation.DESCRIBE)
        secured_kafka.allow(ResourceType.GROUP, groups["group"], user, AclOperation.READ)
        for name in topics:
            wait_for_reconnect(process, (f'cpcmon_records_total{{model="density",source="{name}"}}', 100.0))
            process.wait_for(f'cpcmon_source_ready{{source="{name}"}}', 1.0)
        assert process.stop() == 0
    assert secured_kafka.security.password not in process.log


def test_a_forbidden_dead_letter_topic_is_reported_and_does_not_block(
    site: Site, secured_kafka: SecuredBroker, kafka_site: KafkaSite
) -> None:
    letters = secured_kafka.create_topic(unique("letters"))
    secured_kafka.allow(ResourceType.TOPIC, letters, OTHER, AclOperation.ALL)
    produce(secured_kafka, kafka_site.topic, 1, [b"no JSON", *payloads(VECTORS[100:200], start=100)])
    kafka_site.configure(_plain_sasl(site.folder, secured_kafka) + f"    dead_letters: {{topic: {letters}}}\n")
    with running(site.config) as process:
        process.wait_for(*records_read(200))
        process.wait_for('cpcmon_source_events_total{event="dead_letters_dropped",source="stream"}', 1.0)
        process.wait_for_line(f"expected to be allowed to write to topic {letters}, found a refusal")
        process.wait_for_line(f"grant Write on it to user {secured_kafka.security.user} by SCRAM-SHA-256")
        assert process.ask("/-/ready")[0] == 200
        assert process.stop() == 0
