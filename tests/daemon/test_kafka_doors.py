"""Guarded and absent brokers: what the real process says, what it never says, and that it goes on by itself."""

import signal
from pathlib import Path

import pytest

from tests.daemon.conftest import Site
from tests.daemon.kafka_site import (
    KafkaSite,
    everything_said,
    holds,
    payloads,
    taken,
    wait_for_longer,
    wait_until_not_ready,
    written,
)
from tests.daemon.process import Process, one, running
from tests.kafka.broker import Cluster
from tests.kafka.shared import SecuredBroker
from tests.strategies import synthetic

pytestmark = pytest.mark.slow

HEALTHY = synthetic(300, 3, seed=5, sharpness=2.6)[0]
WRONG = "ZZWRONG-password"


def _reading(site: Site, broker: SecuredBroker, door: str, more: str, records: int = 100) -> KafkaSite:
    topic = broker.create_topic()
    written(broker, topic, 1, payloads(HEALTHY[:records]))
    reading = KafkaSite(site, broker.addresses[door], topic)
    reading.configure(more)
    return reading


def _secret(folder: Path, content: str) -> Path:
    path = folder / "password"
    path.touch(mode=0o600)
    path.write_text(content + "\n")
    return path


def _scram(broker: SecuredBroker, password_file: Path, mechanism: str) -> str:
    sasl = f"    sasl: {{mechanism: {mechanism}, user: {broker.security.user}, password_file: {password_file}}}\n"
    return f"{sasl}    tls: {{ca: {broker.security.authority}}}"


def test_without_a_certificate_that_the_broker_knows_it_is_not_ready_and_says_why(
    site: Site, secured_kafka: SecuredBroker
) -> None:
    security = secured_kafka.security
    own = f", cert: {security.stranger.cert}, key: {security.stranger.key}"
    _reading(site, secured_kafka, "SSL", f"    tls: {{ca: {security.authority}{own}}}")
    with running(site.config) as process:
        body = wait_until_not_ready(process, f"stream kafka {secured_kafka.addresses['SSL']}: expected ")
        wait_until_not_ready(process, "certificate")
        assert "; trying again every " in body
        process.wait_for_line("certificate")
        assert process.stop() == 0


def test_a_wrong_password_is_told_without_it_and_a_reload_takes_the_right_one(
    site: Site, secured_kafka: SecuredBroker
) -> None:
    """Neither password is ever said, not even at the level debug."""
    password = _secret(site.folder, WRONG)
    _reading(site, secured_kafka, "SASL_SSL", _scram(secured_kafka, password, "SCRAM-SHA-512"))
    said = (
        f"stream kafka {secured_kafka.addresses['SASL_SSL']}: expected to be let in as user cpcmon by SCRAM-SHA-512,"
        " found a refusal"
    )
    with running(site.config, "--log.level", "debug") as process:
        body = wait_until_not_ready(process, said)
        assert f"see the password in '{password}', and whether the broker offers SCRAM-SHA-512" in body
        process.wait_for_line("found a refusal")
        page = process.metrics()
        assert one(page, "cpcmon_source_ready", source="stream") == 0.0
        assert one(page, "cpcmon_source_events_total", source="stream", event="errors_authentication") == 1.0
        _secret(site.folder, secured_kafka.security.password)
        process.tell(signal.SIGHUP)
        process.wait_for(*taken(100))
        process.wait_for('cpcmon_source_ready{source="stream"}', 1.0)
        everything = everything_said(process)
        assert process.stop() == 0
    for secret in (WRONG, secured_kafka.security.password):
        assert secret not in everything + process.log


def test_a_password_file_that_is_missing_ends_the_start_with_2_and_its_line(
    site: Site, secured_kafka: SecuredBroker
) -> None:
    """Trying again would not help, so nothing is started."""
    _reading(site, secured_kafka, "SASL_SSL", _scram(secured_kafka, site.folder / "absent", "SCRAM-SHA-256"))
    process = Process(site.config)
    assert process.end() == 2
    assert "sources[0].sasl.password_file: expected a file with a password, found No such file" in process.log


def test_a_broker_that_is_away_at_the_start_and_later_is_waited_for(
    site: Site,
    real_kafka: None,  # noqa: ARG001, a condition
) -> None:
    """Not ready, healthy, saying so; what is in memory is answered for a while; and it goes on by itself."""
    with Cluster(site.folder / "broker") as cluster:
        topic = cluster.create_topic()
        reading = KafkaSite(site, cluster.bootstrap, topic)
        reading.configure()
        messages = payloads(HEALTHY)
        written(cluster, topic, 1, messages[:100])
        cluster.kill(1)
        with running(site.config) as process:
            said = f"kafka {cluster.bootstrap}: expected a broker to answer, found connection refused"
            wait_until_not_ready(process, said)
            process.wait_for_line(said)
            cluster.restart(1)
            wait_for_longer(process, taken(100))
            process.wait_for('cpcmon_source_ready{source="stream"}', 1.0)
            cluster.kill(1)
            wait_until_not_ready(process, f"kafka {cluster.bootstrap}: expected ")
            page = process.metrics()
            assert one(page, "cpcmon_window_records", segment="all") == 100.0
            assert one(page, "cpcmon_source_ready", source="stream") == 0.0
            # By now the group could have given its partitions to another process.
            process.wait_for('cpcmon_kafka_assigned_partitions{source="stream"}', 0.0)
            process.wait_for('cpcmon_window_state{model="density",segment="all",state="catching_up"}', 1.0)
            cluster.restart(1)
            written(cluster, topic, 1, messages[100:])
            wait_for_longer(process, taken(300))
            process.wait_for_line("answers again")
            process.wait_for('cpcmon_source_ready{source="stream"}', 1.0)
            process.wait_for(*holds(300))
            assert process.stop() == 0
