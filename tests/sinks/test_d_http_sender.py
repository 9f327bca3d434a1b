"""One request to a real server: its outcome, its limits, and the address that it goes to."""

import base64
import socket
import ssl
import subprocess
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from monitor.config.config import HttpTarget
from monitor.sinks.http_sender import MAX_RESPONSE_BYTES, HttpSender, Outcome, is_forbidden
from tests.servers import real_server
from tests.sinks.receiver import Behaviour, Receiver, status


def sender(url: str, *, timeout_seconds: float = 10.0, allow_link_local: bool = False, **options: Any) -> HttpSender:
    return HttpSender(HttpTarget(url, timeout_seconds, allow_http=True, allow_link_local=allow_link_local), **options)


def resolving_to(*answers: str) -> tuple[Callable[..., list[tuple[Any, ...]]], list[str]]:
    """Return a resolver that gives each answer once, and the names it was asked for."""
    asked: list[str] = []
    waiting = list(answers)

    def resolve(host: str, port: int, **_: object) -> list[tuple[Any, ...]]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (waiting.pop(0), port))]

    return resolve, asked


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        *[(code, Outcome.SENT) for code in (200, 204)],
        *[(code, Outcome.REDIRECTED) for code in (301, 308)],
        *[(code, Outcome.FAILED) for code in (400, 404, 413)],
        *[(code, Outcome.RETRY) for code in (408, 425, 429, 500, 503)],
    ],
)
def test_the_status_decides_the_outcome(code: int, outcome: Outcome) -> None:
    with Receiver(status(code)) as receiver:
        answer = sender(receiver.url()).send(b"{}")
    assert answer.outcome is outcome
    assert str(code) in answer.reason


def test_a_request_has_path_host_type_and_length() -> None:
    """And no other header."""
    with Receiver() as receiver:
        sender(receiver.url("/a/b?c=%20d")).send(b'{"x":1}')
        got = receiver.get()
    assert (got.method, got.path, got.body) == ("POST", "/a/b?c=%20d", b'{"x":1}')
    assert got.headers == {
        "host": f"127.0.0.1:{receiver.port}",
        "user-agent": "cpcmon",
        "accept": "*/*",
        "content-type": "application/json",
        "content-length": "7",
        "connection": "close",
    }


@pytest.mark.parametrize(
    ("userinfo", "login"),
    [
        pytest.param("user:pass@", b"user:pass", id="both"),
        pytest.param("user@", b"user:", id="user alone"),
        pytest.param("us%40er:p%3Aa%2Fss@", b"us@er:p:a/ss", id="escaped"),
        pytest.param("user:p:a@", b"user:p:a", id="colon in the password"),
    ],
)
def test_d3_user_and_password_become_a_header(userinfo: str, login: bytes) -> None:
    """They are not part of the path or the Host header."""
    with Receiver() as receiver:
        sender(receiver.url("/x", userinfo)).send(None)
        got = receiver.get()
    assert got.headers["authorization"] == "Basic " + base64.b64encode(login).decode()
    assert (got.method, got.headers["host"], got.path) == ("GET", f"127.0.0.1:{receiver.port}", "/x")


@pytest.mark.parametrize(
    "address",
    [
        *("169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%eth0", "febf::1", "fd00:ec2::254"),
        *("224.0.0.1", "239.1.1.1", "ff02::1", "0.0.0.0", "::"),  # noqa: S104 - nothing is bound
        *("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "::169.254.169.254", "2002:a9fe:a9fe::1", "::ffff:0.0.0.0"),
        *("100.100.100.200", "168.63.129.16", "192.0.0.192"),
    ],
)
def test_d14_link_local_metadata_and_multicast_addresses_are_forbidden(address: str) -> None:
    """Also embedded in IPv6."""
    assert is_forbidden(address)


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "93.184.216.34", "::1", "fd00::1", "2001:db8::1"]
)
def test_loopback_and_private_addresses_are_allowed(address: str) -> None:
    """Hospitals run their receivers inside."""
    assert not is_forbidden(address)


def test_d14_a_redirect_to_the_metadata_service_is_not_followed() -> None:
    with Receiver(status(302, Location="http://169.254.169.254/latest/meta-data/")) as receiver:
        answer = sender(receiver.url()).send(b"{}")
        receiver.get()
        assert receiver.received.empty()
    assert answer.outcome is Outcome.REDIRECTED
    assert "169.254" not in answer.reason


@pytest.mark.parametrize("address", ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "2852039166"])
def test_d14_an_address_of_the_metadata_service_fails_at_once(address: str) -> None:
    """In any notation: the resolver reads numbers too."""
    answer = sender(f"http://{address}/").send(None)
    assert answer.outcome is Outcome.FAILED
    assert "link-local" in answer.reason


def test_d14_a_name_that_resolves_to_the_metadata_service_fails_at_once() -> None:
    resolve, asked = resolving_to("169.254.169.254")
    answer = sender("http://hook.example/", resolve=resolve).send(None)
    assert answer.outcome is Outcome.FAILED
    assert asked == ["hook.example"]


def test_d14_the_connection_goes_to_the_address_that_was_checked() -> None:
    """The name is not resolved a second time: it could mean something else by then."""
    resolve, asked = resolving_to("127.0.0.1", "169.254.169.254")
    with Receiver() as receiver:
        answer = sender(f"http://hook.example:{receiver.port}/", resolve=resolve).send(None)
        got = receiver.get()
    assert answer.outcome is Outcome.SENT
    assert got.headers["host"] == f"hook.example:{receiver.port}"
    assert asked == ["hook.example"]


def test_d14_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as receiver, Receiver() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url(""))
        assert sender(receiver.url()).send(None).outcome is Outcome.SENT
        assert proxy.received.empty()


@pytest.mark.parametrize("first", ["127.0.0.2", "169.254.169.254"], ids=["closed", "forbidden"])
def test_the_next_address_is_tried(first: str) -> None:
    """A name may have an old or forbidden address beside a good one."""
    with Receiver() as receiver:

        def resolve(_host: str, port: int, **_: object) -> list[tuple[Any, ...]]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in (first, "127.0.0.1")]

        answer = sender(f"http://hook.example:{receiver.port}/", resolve=resolve).send(None)
    assert answer.outcome is Outcome.SENT


def test_link_local_addresses_can_be_allowed() -> None:
    answer = sender("http://0.0.0.0:9/", timeout_seconds=1.0, allow_link_local=True).send(None)
    assert answer.outcome is Outcome.RETRY


def _silence(handler: BaseHTTPRequestHandler) -> None:
    if not handler.server.stop.wait(60):  # type: ignore[attr-defined]
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")


def _drip(handler: BaseHTTPRequestHandler) -> None:
    """Send headers slowly: no single read waits long."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    for _ in range(3000):
        if handler.server.stop.wait(0.02):  # type: ignore[attr-defined]
            return
        handler.wfile.write(b"x")
    handler.wfile.write(b"\r\n\r\n")


def _flood(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
    while True:
        handler.wfile.write(b"x" * 65536)


def _interim(handler: BaseHTTPRequestHandler) -> None:
    handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\n\r\n")


def _endless_interim(handler: BaseHTTPRequestHandler) -> None:
    while True:
        handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000)


def _raw(answer: bytes) -> Behaviour:
    def behave(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(answer)

    return behave


@pytest.mark.parametrize("behaviour", [_silence, _drip], ids=["silent", "drips"])
def test_d15_the_timeout_limits_the_whole_exchange(behaviour: Behaviour) -> None:
    with Receiver(behaviour) as receiver:
        answer = sender(receiver.url(), timeout_seconds=0.3).send(b"{}")
    assert (answer.outcome, answer.reason) == (Outcome.RETRY, "expected an answer, found timed out")


@pytest.mark.parametrize(
    ("behaviour", "found"),
    [
        pytest.param(_flood, f"more than {MAX_RESPONSE_BYTES} bytes", id="endless headers"),
        pytest.param(_endless_interim, f"more than {MAX_RESPONSE_BYTES} bytes", id="endless interim responses"),
        pytest.param(_raw(b""), "closed", id="nothing"),
        pytest.param(_raw(b"HTTP/1.1 200 OK\r\n"), "closed", id="half a response"),
        pytest.param(_raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "not HTTP", id="another protocol"),
        pytest.param(_raw(b"HTTP/1.1 0x20 OK\r\n\r\n"), "not HTTP", id="bad status"),
        pytest.param(_raw(b"\xff" * 100 + b"\r\n\r\n"), "not HTTP", id="no text"),
    ],
)
def test_d15_a_broken_response_is_retried_and_never_quoted(behaviour: Behaviour, found: str) -> None:
    with Receiver(behaviour) as receiver:
        answer = sender(receiver.url()).send(b"{}")
    assert answer.outcome is Outcome.RETRY
    assert found in answer.reason
    assert "SSH" not in answer.reason


def test_interim_responses_are_skipped() -> None:
    with Receiver(_interim) as receiver:
        assert sender(receiver.url()).send(b"{}").outcome is Outcome.SENT


def test_d15_the_body_of_a_response_is_not_read() -> None:
    """Of the gigabyte offered, only the socket buffers fill."""
    offered = []

    def huge(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
        for _ in range(16384):
            handler.wfile.write(bytes(65536))
            offered.append(65536)

    with Receiver(huge) as receiver:
        assert sender(receiver.url()).send(b"{}").outcome is Outcome.SENT
    assert sum(offered) < 64 << 20


def test_a_closed_port_and_an_unknown_name_are_retried() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        answer = sender(f"http://127.0.0.1:{closed.getsockname()[1]}/").send(None)
    assert answer.outcome is Outcome.RETRY
    assert "refused" in answer.reason

    def unknown(*_: object, **__: object) -> list[tuple[Any, ...]]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    answer = sender("http://hook.example/", resolve=unknown).send(None)
    assert answer.outcome is Outcome.RETRY
    assert "Name or service not known" in answer.reason


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for hook.example, with its key."""
    file = tmp_path_factory.mktemp("tls") / "hook.pem"
    command = (
        f"{real_server('openssl')} req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
        f" -subj /CN=hook.example -addext subjectAltName=DNS:hook.example -keyout {file} -out {file.with_suffix('.crt')}"
    )
    subprocess.run(command.split(), check=True, capture_output=True)
    file.write_bytes(file.read_bytes() + file.with_suffix(".crt").read_bytes())
    return file


@pytest.mark.parametrize(
    ("host", "trusted", "outcome"),
    [
        pytest.param("hook.example", True, Outcome.SENT, id="right name, trusted"),
        pytest.param("other.example", True, Outcome.RETRY, id="another name"),
        pytest.param("hook.example", False, Outcome.RETRY, id="not trusted"),
    ],
)
def test_d14_the_certificate_must_be_for_the_name_whatever_the_address(
    certificate: Path, *, host: str, trusted: bool, outcome: Outcome
) -> None:
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate)
    client = ssl.create_default_context(cafile=str(certificate.with_suffix(".crt"))) if trusted else None
    resolve, _ = resolving_to("127.0.0.1")
    with Receiver(tls=serving) as receiver:
        answer = sender(f"https://{host}:{receiver.port}/", resolve=resolve, tls=client).send(b"{}")
        assert receiver.received.empty() == (outcome is not Outcome.SENT)
    assert answer.outcome is outcome
    assert outcome is Outcome.SENT or "certificate" in answer.reason
