"""A broker that lets us in but allows us less than we need: what the real process says, and that it goes on by itself."""

from pathlib import Path

import pytest
from confluent_kafka.admin._acl import AclOperation
from confluent_kafka.admin._resource import ResourceType

from tests.daemon.conftest import Site
from tests.daemon.kafka_site import KafkaSite, payloads, taken, wait_for_longer, wait_until_not_ready, written
from tests.daemon.process import one, running
from tests.kafka.shared import SecuredBroker
from tests.kafka.topics import unique
from tests.strategies import synthetic

pytestmark = pytest.mark.slow

HEALTHY = synthetic(300, 3, seed=5, sharpness=2.6)[0]
OTHER = "somebody-else"


@pytest.fixture
def reading(site: Site, secured_kafka: SecuredBroker) -> KafkaSite:
    """A site that reads a hundred records as the user whom rights are given to."""
    topic = secured_kafka.create_topic()
    written(secured_kafka, topic, 1, payloads(HEALTHY[:100]))
    return KafkaSite(site, secured_kafka.addresses["SASL_PLAINTEXT"], topic)


def _sasl(folder: Path, broker: SecuredBroker) -> str:
    path = folder / "password"
    path.touch(mode=0o600)
    path.write_text(broker.security.password)
    return f"    sasl: {{mechanism: SCRAM-SHA-256, user: {broker.security.user}, password_file: {path}}}\n"


@pytest.mark.parametrize("has", [(), (AclOperation.DESCRIBE,)], ids=["nothing", "describe"])
def test_a_topic_that_may_not_be_read_is_named_and_read_once_it_may(
    site: Site, secured_kafka: SecuredBroker, reading: KafkaSite, has: tuple[AclOperation, ...]
) -> None:
    user = secured_kafka.security.user
    secured_kafka.allow(ResourceType.TOPIC, reading.topic, OTHER, AclOperation.ALL)
    if has:
        secured_kafka.allow(ResourceType.TOPIC, reading.topic, user, *has)
    reading.configure(_sasl(site.folder, secured_kafka))
    with running(site.config) as process:
        body = wait_until_not_ready(process, f"expected to be allowed to read topic {reading.topic}, found a refusal")
        assert f"grant Read and Describe on it to user {user} by SCRAM-SHA-256" in body
        process.wait_for_line(f"expected to be allowed to read topic {reading.topic}")
        page = process.metrics()
        assert one(page, "cpcmon_source_ready", source="stream") == 0.0
        assert (one(page, "cpcmon_source_events_total", source="stream", event="errors_authorization") or 0.0) >= 1.0
        assert process.ask("/-/healthy")[0] == 200
        secured_kafka.allow(ResourceType.TOPIC, reading.topic, user, AclOperation.READ, AclOperation.DESCRIBE)
        wait_for_longer(process, taken(100))
        process.wait_for('cpcmon_source_ready{source="stream"}', 1.0)
        assert process.stop() == 0
    assert secured_kafka.security.password not in process.log


def test_a_group_that_may_not_be_used_is_named_and_joined_once_it_may(
    site: Site, secured_kafka: SecuredBroker, reading: KafkaSite
) -> None:
    user = secured_kafka.security.user
    secured_kafka.allow(ResourceType.GROUP, reading.group, OTHER, AclOperation.ALL)
    reading.configure(_sasl(site.folder, secured_kafka))
    with running(site.config) as process:
        body = wait_until_not_ready(process, f"expected to be allowed to use group {reading.group}, found a refusal")
        assert f"grant Read on the group to user {user} by SCRAM-SHA-256" in body
        secured_kafka.allow(ResourceType.GROUP, reading.group, user, AclOperation.READ)
        wait_for_longer(process, taken(100))
        process.wait_for('cpcmon_source_ready{source="stream"}', 1.0)
        assert process.stop() == 0


def test_dead_letters_that_may_not_be_written_are_counted_and_hold_nothing_up(
    site: Site, secured_kafka: SecuredBroker, reading: KafkaSite
) -> None:
    letters = secured_kafka.create_topic(unique("letters"))
    secured_kafka.allow(ResourceType.TOPIC, letters, OTHER, AclOperation.ALL)
    written(secured_kafka, reading.topic, 1, [b"no JSON", *payloads(HEALTHY[100:200], start=100)])
    reading.configure(_sasl(site.folder, secured_kafka) + f"    dead_letters: {{topic: {letters}}}\n")
    with running(site.config) as process:
        process.wait_for(*taken(200))
        process.wait_for('cpcmon_source_events_total{event="dead_letters_dropped",source="stream"}', 1.0)
        process.wait_for_line(f"expected to be allowed to write to topic {letters}, found a refusal")
        process.wait_for_line(f"grant Write on it to user {secured_kafka.security.user} by SCRAM-SHA-256")
        assert process.ask("/-/ready")[0] == 200
        assert process.stop() == 0
