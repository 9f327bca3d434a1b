"""One request to a real server: what becomes of it, within which limits, and to which address it goes."""

import socket
import ssl
import subprocess
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from monitor.sinks.http_sender import MOST_READ, Fate, Poster, Target
from tests.servers import real_server
from tests.sinks.receiver import Behaviour, Receiver, status


def poster(url: str, **options: Any) -> Poster:
    """Return a poster that is allowed to use plain HTTP, as a test is."""
    return Poster(Target.of(url, allow_http=True), **{"timeout_seconds": 10.0} | options)


def resolving_to(*answers: str) -> tuple[Callable[..., list[tuple[Any, ...]]], list[str]]:
    """Return a resolver that gives each answer once, and the names it was asked for."""
    asked: list[str] = []
    waiting = list(answers)

    def resolve(host: str, port: int, **_: object) -> list[tuple[Any, ...]]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (waiting.pop(0), port))]

    return resolve, asked


@pytest.mark.parametrize(
    ("code", "fate"),
    [
        *[(code, Fate.SENT) for code in (200, 201, 202, 204)],
        *[(code, Fate.REDIRECTED) for code in (301, 302, 303, 307, 308)],
        *[(code, Fate.FAILED) for code in (400, 401, 403, 404, 410, 413)],
        *[(code, Fate.RETRY) for code in (408, 429, 500, 502, 503, 504)],
    ],
)
def test_the_status_decides(code: int, fate: Fate) -> None:
    """What may pass is tried again, what will not is not."""
    with Receiver(status(code)) as receiver:
        answer = poster(receiver.url()).send("POST", b"{}")
    assert answer.fate is fate
    assert str(code) in answer.why


def test_a_request_is_what_its_parts_say() -> None:
    """Path, host, type and length of the body; nothing of the environment."""
    with Receiver() as receiver:
        poster(receiver.url("/a/b?c=%20d")).send("POST", b'{"x":1}')
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


def test_d14_a_redirect_to_the_metadata_service_is_not_followed() -> None:
    """One request, and an answer that says why."""
    with Receiver(status(302, Location="http://169.254.169.254/latest/meta-data/")) as receiver:
        answer = poster(receiver.url()).send("POST", b"{}")
        receiver.get()
        assert receiver.received.empty()
    assert answer.fate is Fate.REDIRECTED
    assert "169.254" not in answer.why


@pytest.mark.parametrize("address", ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "2852039166"])
def test_d14_an_address_of_the_metadata_service_is_refused_at_once(address: str) -> None:
    """However it is written: the resolver reads numbers as well as we do."""
    answer = poster(f"http://{address}/").send("GET")
    assert answer.fate is Fate.FAILED
    assert "link-local" in answer.why


def test_d14_a_name_that_resolves_there_is_refused() -> None:
    """No connection is tried, and trying again would not help."""
    resolve, asked = resolving_to("169.254.169.254")
    answer = poster("http://hook.example/", resolve=resolve).send("GET")
    assert answer.fate is Fate.FAILED
    assert asked == ["hook.example"]


def test_d14_the_connection_goes_to_the_address_that_was_checked() -> None:
    """A name that means something else the second time is not asked a second time."""
    resolve, asked = resolving_to("127.0.0.1", "169.254.169.254")
    with Receiver() as receiver:
        answer = poster(f"http://hook.example:{receiver.port}/", resolve=resolve).send("GET")
        got = receiver.get()
    assert answer.fate is Fate.SENT
    assert got.headers["host"] == f"hook.example:{receiver.port}"
    assert asked == ["hook.example"]


def test_d14_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can set a variable would otherwise read every alert."""
    with Receiver() as receiver, Receiver() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url(""))
        assert poster(receiver.url()).send("GET").fate is Fate.SENT
        assert proxy.received.empty()


def test_the_next_address_is_tried_when_one_does_not_answer() -> None:
    """A name may have an old address beside a good one."""
    with Receiver() as receiver, socket.socket() as closed:
        closed.bind(("127.0.0.2", 0))

        def resolve(_host: str, port: int, **_: object) -> list[tuple[Any, ...]]:
            return [
                (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.2", closed.getsockname()[1])),
                (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)),
            ]

        answer = poster(f"http://hook.example:{receiver.port}/", resolve=resolve).send("GET")
    assert answer.fate is Fate.SENT


def _silence(handler: BaseHTTPRequestHandler) -> None:
    if not handler.server.stop.wait(60):  # type: ignore[attr-defined]
        handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")


def _drip(handler: BaseHTTPRequestHandler) -> None:
    """Send a header slowly: no single read waits long, and whoever waits for the end is answered."""
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
def test_d15_a_slow_answer_ends_with_the_timeout(behaviour: Behaviour) -> None:
    """The time is for the whole, and not for each read."""
    with Receiver(behaviour) as receiver:
        answer = poster(receiver.url(), timeout_seconds=0.3).send("POST", b"{}")
    assert (answer.fate, answer.why) == (Fate.RETRY, "expected an answer, found timed out")


@pytest.mark.parametrize(
    ("behaviour", "found"),
    [
        pytest.param(_flood, f"more than {MOST_READ} bytes", id="headers without end"),
        pytest.param(_endless_interim, f"more than {MOST_READ} bytes", id="interim answers without end"),
        pytest.param(_raw(b""), "closed", id="nothing"),
        pytest.param(_raw(b"HTTP/1.1 200 OK\r\n"), "closed", id="half an answer"),
        pytest.param(_raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "not HTTP", id="another protocol"),
        pytest.param(_raw(b"HTTP/1.1 0x20 OK\r\n\r\n"), "not HTTP", id="an odd status"),
        pytest.param(_raw(b"\xff" * 100 + b"\r\n\r\n"), "not HTTP", id="no text at all"),
    ],
)
def test_d15_an_answer_that_makes_no_sense_is_a_failure_that_may_pass(behaviour: Behaviour, found: str) -> None:
    """And its words are never repeated."""
    with Receiver(behaviour) as receiver:
        answer = poster(receiver.url()).send("POST", b"{}")
    assert answer.fate is Fate.RETRY
    assert found in answer.why
    assert "SSH" not in answer.why


def test_an_interim_answer_is_not_the_answer() -> None:
    """The one that counts follows it."""
    with Receiver(_interim) as receiver:
        assert poster(receiver.url()).send("POST", b"{}").fate is Fate.SENT


def test_d15_the_body_of_an_answer_is_not_read() -> None:
    """A gigabyte is offered; what was taken is what fits into the buffers of sockets."""
    offered = []

    def huge(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n")
        for _ in range(16384):
            handler.wfile.write(bytes(65536))
            offered.append(65536)

    with Receiver(huge) as receiver:
        assert poster(receiver.url()).send("POST", b"{}").fate is Fate.SENT
    assert sum(offered) < 64 << 20


def test_nobody_there_is_a_failure_that_may_pass() -> None:
    """A closed port, and a name that nobody knows."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        answer = poster(f"http://127.0.0.1:{closed.getsockname()[1]}/").send("GET")
    assert answer.fate is Fate.RETRY
    assert "refused" in answer.why

    def unknown(*_: object, **__: object) -> list[tuple[Any, ...]]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    answer = poster("http://hook.example/", resolve=unknown).send("GET")
    assert (answer.fate, answer.why) == (
        Fate.RETRY,
        "expected the name to resolve, found Name or service not known",
    )


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for hook.example that is its own authority, with its key."""
    file = tmp_path_factory.mktemp("tls") / "hook.pem"
    subprocess.run(
        [
            *(
                real_server("openssl"),
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-days",
                "2",
            ),
            *("-subj", "/CN=hook.example", "-addext", "subjectAltName=DNS:hook.example"),
            *("-keyout", str(file), "-out", str(file.with_suffix(".crt"))),
        ],
        check=True,
        capture_output=True,
    )
    file.write_bytes(file.read_bytes() + file.with_suffix(".crt").read_bytes())
    return file


@pytest.mark.parametrize(
    ("host", "trusted", "fate"),
    [
        pytest.param("hook.example", True, Fate.SENT, id="right name, trusted"),
        pytest.param("other.example", True, Fate.RETRY, id="another name"),
        pytest.param("hook.example", False, Fate.RETRY, id="nobody vouches for it"),
    ],
)
def test_d14_the_certificate_must_be_for_the_name_whatever_the_address(
    certificate: Path, *, host: str, trusted: bool, fate: Fate
) -> None:
    """The connection goes to a checked address; who answers there must still be who was meant."""
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate)
    asking = ssl.create_default_context(cafile=str(certificate.with_suffix(".crt"))) if trusted else None
    resolve, _ = resolving_to("127.0.0.1")
    with Receiver(tls=serving) as receiver:
        answer = poster(f"https://{host}:{receiver.port}/", resolve=resolve, tls=asking).send("POST", b"{}")
        assert receiver.received.empty() == (fate is not Fate.SENT)
    assert answer.fate is fate
    assert fate is Fate.SENT or "certificate" in answer.why
