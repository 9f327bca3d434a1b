"""Secured and unreachable brokers: what is reported, and that reading resumes."""

import base64
import json
import logging
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from monitor.sources.kafka.kafka_options import Mechanism, SaslOptions, TlsOptions
from tests.kafka.producing import Writer
from tests.kafka.shared import SecuredBroker
from tests.sources.kafka.conftest import Join
from tests.sources.kafka.member import Member, payloads

WRONG = "ZZWRONG-password"


def _file(folder: Path, content: str) -> Path:
    path = folder / "secret"
    path.write_text(content + "\n")
    return path


def _sasl(broker: SecuredBroker, folder: Path, mechanism: Mechanism, password: str | None = None) -> SaslOptions:
    return SaslOptions(mechanism, broker.security.user, _file(folder, password or broker.security.password))


def _reads(broker: SecuredBroker, join: Join, door: str, **settings: Any) -> None:
    topic = broker.create_topic()
    Writer(broker.bootstrap, topic).write(payloads(range(5)))
    member = join(broker.addresses[door], topic, **settings)
    member.until_rows(f"{topic}/0", range(5))


def _refused(broker: SecuredBroker, join: Join, door: str, **settings: Any) -> Member:
    member: Member = join(broker.addresses[door], "outputs", **settings)
    member.until(lambda: bool(member.warnings), "a warning")
    return member


def test_a_client_certificate_is_shown_to_the_broker(secured_kafka: SecuredBroker, join: Join) -> None:
    security = secured_kafka.security
    _reads(secured_kafka, join, "SSL", tls=TlsOptions(security.authority, security.client.cert, security.client.key))


@pytest.mark.parametrize("mechanism", [one for one in Mechanism if one is not Mechanism.OAUTHBEARER])
def test_a_password_over_tls_authenticates(
    secured_kafka: SecuredBroker, join: Join, tmp_path: Path, mechanism: Mechanism
) -> None:
    sasl = _sasl(secured_kafka, tmp_path, mechanism)
    _reads(secured_kafka, join, "SASL_SSL", sasl=sasl, tls=TlsOptions(secured_kafka.security.authority))


def test_a_token_file_authenticates(secured_kafka: SecuredBroker, join: Join, tmp_path: Path) -> None:
    now = int(time.time())
    parts = [{"alg": "none"}, {"sub": "cpcmon", "iat": now - 60, "exp": now + 600}]
    token = ".".join(base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=").decode() for one in parts) + "."
    sasl = SaslOptions(Mechanism.OAUTHBEARER, token_file=_file(tmp_path, token))
    _reads(secured_kafka, join, "SASL_PLAINTEXT", sasl=sasl)


@pytest.mark.parametrize("mechanism", [Mechanism.PLAIN, Mechanism.SCRAM_SHA_512])
def test_a_wrong_password_is_reported_without_it_and_the_right_one_is_used(
    secured_kafka: SecuredBroker,
    join: Join,
    tmp_path: Path,
    mechanism: Mechanism,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("monitor.sources.kafka.connection.LONGEST_WAIT", 0.5)
    caplog.set_level(logging.DEBUG, logger="kafka")
    topic = secured_kafka.create_topic()
    Writer(secured_kafka.bootstrap, topic).write(payloads(range(5)))
    sasl = _sasl(secured_kafka, tmp_path, mechanism, WRONG)
    member = join(secured_kafka.addresses["SASL_PLAINTEXT"], topic, sasl=sasl)
    member.until(lambda: bool(member.warnings), "a warning")
    assert member.counted["errors_authentication"] == 1
    (warning,) = member.warnings
    assert f"expected to be authenticated as user cpcmon by {mechanism}, found a refusal" in warning
    assert warning in (member.source.status().waits_for or "")
    everything = " ".join([*member.warnings, *member.events, caplog.text, member.source.status().waits_for or ""])
    assert "kafka.net" in everything
    assert WRONG not in everything
    _file(tmp_path, secured_kafka.security.password)
    member.until_rows(f"{topic}/0", range(5))
    member.until(lambda: member.source.status().waits_for is None, "to be ready")


def test_a_missing_password_file_is_reported(secured_kafka: SecuredBroker, join: Join, tmp_path: Path) -> None:
    sasl = SaslOptions(Mechanism.PLAIN, "cpcmon", tmp_path / "absent")
    member = _refused(secured_kafka, join, "SASL_PLAINTEXT", sasl=sasl)
    assert f"found sasl.password_file '{tmp_path}/absent' that cannot be read" in member.warnings[0]


def test_an_unknown_broker_certificate_is_not_trusted(secured_kafka: SecuredBroker, join: Join) -> None:
    other = secured_kafka.security.untrusted.cert.with_name("other-authority.crt")
    member = _refused(secured_kafka, join, "SSL", tls=TlsOptions(other))
    assert "expected an encrypted connection, found a certificate that is not trusted" in member.warnings[0]
    assert member.counted["errors_tls"] == 1


def test_a_plaintext_client_on_a_tls_port_is_advised_to_use_tls(secured_kafka: SecuredBroker, join: Join) -> None:
    member = _refused(secured_kafka, join, "SSL")
    assert "it may expect TLS" in member.warnings[0]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def test_a_missing_broker_is_reported_and_leaves_no_threads(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.sources.kafka.client.BOOTSTRAP_SECONDS", 0.2)
    monkeypatch.setattr("monitor.sources.kafka.connection.LONGEST_WAIT", 0.1)
    before = threading.active_count()
    member = join(f"127.0.0.1:{_free_port()}", "outputs")
    assert "not connected yet" in (member.source.status().waits_for or "")
    member.until(lambda: member.counted["errors_unreachable"] >= 4, "some attempts")
    assert "expected a broker to answer, found connection refused; retrying every" in (
        member.source.status().waits_for or ""
    )
    assert len(member.warnings) == 1
    # One attempt may be in progress, with a thread of the library.
    assert threading.active_count() <= before + 2
    member.source.close()


def test_an_unknown_host_is_reported(join: Join, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("monitor.sources.kafka.client.BOOTSTRAP_SECONDS", 0.2)
    member = join("no-such-host.invalid:9092", "outputs")
    member.until(lambda: bool(member.warnings), "a warning")
    assert "found no address for host no-such-host.invalid" in member.warnings[0]


def test_a_poll_does_not_block_on_the_connection(join: Join) -> None:
    """A listener that never responds blocks an attempt for seconds; polls return all the same."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        member = join(f"127.0.0.1:{silent.getsockname()[1]}", "outputs")
        for _ in range(100):
            member.tick()
        assert "not connected yet" in (member.source.status().waits_for or "")
        member.source.close()
