"""The listen address, and errors when the server cannot listen."""

import re
import socket

import pytest

from monitor.errors import CpcmonError, UsageError
from monitor.web.server.addresses import Address, listen, parse_address
from monitor.web.server.web_server import WebServer
from tests.web.conftest import PAGES


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9877", Address("127.0.0.1", 9877)),
        (":9877", Address("", 9877)),
        ("[::1]:9877", Address("::1", 9877)),
        ("localhost:0", Address("localhost", 0)),
        ("0.0.0.0:65535", Address("0.0.0.0", 65535)),  # noqa: S104  it is only read
    ],
)
def test_parse_and_format_an_address(text: str, address: Address) -> None:
    assert parse_address(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "9877", "localhost", "::1:9877", "host:65536", "host:-1", "a b:1", "http://x:1", "[::1]"]
)
def test_a_malformed_address_is_a_usage_error(text: str) -> None:
    expected = f"web.listen-address: expected HOST:PORT, :PORT or [IPv6]:PORT, found {text!r}"
    with pytest.raises(UsageError, match=re.escape(expected)):
        WebServer(text, PAGES, None)


def test_a_port_in_use_raises_on_start(taken_port: int) -> None:
    """On the caller's thread. Stopping then does nothing."""
    server = WebServer(f"127.0.0.1:{taken_port}", PAGES, None)
    with pytest.raises(
        CpcmonError, match=rf"^web: expected 127\.0\.0\.1:{taken_port} to be free, found it in use: stop"
    ):
        server.start()
    server.stop()


def test_a_foreign_or_unknown_host_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CpcmonError, match=r"expected 192\.0\.2\.1:0 to be an address of this machine"):
        listen(Address("192.0.2.1", 0))
    for host in ("..", "a" * 64):
        with pytest.raises(CpcmonError, match=r"to be an address of this machine, found an invalid host name"):
            listen(Address(host, 0))
    monkeypatch.setattr(socket, "getaddrinfo", _unknown)
    with pytest.raises(CpcmonError, match="expected nowhere:0 to be an address of this machine"):
        listen(Address("nowhere", 0))


def _unknown(*_: object, **__: object) -> None:
    raise socket.gaierror(socket.EAI_NONAME, "unknown")


def test_without_a_host_it_listens_on_all_interfaces() -> None:
    server = WebServer(":0", PAGES, None)
    server.start()
    try:
        socket.create_connection(("127.0.0.1", server.port), timeout=10.0).close()
        assert server.url == f"http://localhost:{server.port}/"
    finally:
        server.stop()


def test_stop_frees_the_port() -> None:
    """Stopping twice is allowed."""
    first = WebServer("127.0.0.1:0", PAGES, None)
    first.start()
    port = first.port
    socket.create_connection(("127.0.0.1", port), timeout=10.0).close()
    first.stop()
    first.stop()
    second = WebServer(f"127.0.0.1:{port}", PAGES, None)
    second.start()
    second.stop()
