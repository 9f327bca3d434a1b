"""Host names are checked against DNS rebinding."""

import contextlib
import socket
from collections.abc import Iterator

import pytest

from monitor.web.server.addresses import Hosts
from monitor.web.server.web_server import WebServer
from tests.web.clients import Client
from tests.web.conftest import PAGES

NAMED: list[str] = []


@pytest.fixture
def client() -> Iterator[Client]:
    """A client of a server on all interfaces with one entry in `web.hosts`."""
    NAMED[:] = ["Cpcmon.Hospital.example"]
    server = WebServer(":0", PAGES, None, hosts=lambda: NAMED)
    server.start()
    with contextlib.closing(Client(server)) as client:
        yield client
    server.stop()


def _status(client: Client, host: str, target: str = "/metrics") -> int:
    request = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    return int(client.talk(request.encode("latin-1")).split(b" ", 2)[1])


@pytest.mark.parametrize(
    ("host", "status"),
    [
        pytest.param("localhost", 200, id="localhost"),
        pytest.param("LOCALHOST.:9877", 200, id="upper case, a dot at the end, a port"),
        pytest.param(socket.gethostname(), 200, id="the machine's own name"),
        pytest.param("127.0.0.1:80", 200, id="IPv4"),
        pytest.param("10.1.2.3", 200, id="IPv4 of a pod or a proxy"),
        pytest.param("[::1]:9877", 200, id="IPv6"),
        pytest.param("[fe80::1%25eth0]", 200, id="IPv6 with a zone"),
        pytest.param("cpcmon.hospital.example:443", 200, id="named in web.hosts"),
        pytest.param("attacker.example", 421, id="another"),
        pytest.param("attacker.example:9877", 421, id="another with a port"),
        pytest.param("localhost.attacker.example", 421, id="begins like an allowed one"),
        pytest.param("x.cpcmon.hospital.example", 421, id="ends like an allowed one"),
        pytest.param("127.0.0.1.attacker.example", 421, id="begins like an address"),
        pytest.param("2130706433", 421, id="an address as a number"),
        pytest.param("", 400, id="empty"),
        pytest.param(".", 400, id="a dot"),
        pytest.param("[::1", 400, id="half a bracket"),
        pytest.param("[localhost]", 400, id="a name in brackets"),
        pytest.param("localhost:http", 400, id="a port that is no number"),
        pytest.param("localhost, attacker.example", 400, id="a list"),
        pytest.param("me@localhost", 400, id="a user"),
        pytest.param("localhost/", 400, id="a path"),
        pytest.param("lo\xe7alhost", 400, id="not ASCII"),
    ],
)
def test_d_only_allowed_hosts_are_answered(client: Client, host: str, status: int) -> None:
    assert _status(client, host) == status
    assert _status(client, host, "/nowhere") == (404 if status == 200 else status)


def test_d_the_refusal_names_the_setting_and_echoes_nothing(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    """It is logged once."""
    for _ in range(3):
        answer = client.ask(Host="attacker.example")
        assert b"web.hosts" in answer.body
        assert b"attacker" not in answer.body
    (record,) = [one for one in caplog.records if one.name == "cpcmon"]
    assert "web.hosts" in record.getMessage()
    assert "attacker" not in caplog.text


def test_d_a_star_allows_every_host(client: Client) -> None:
    NAMED[:] = ["*"]
    assert _status(client, "attacker.example") == 200
    NAMED[:] = []
    assert _status(client, "attacker.example") == 421


def test_d_the_host_of_an_absolute_target_overrides_the_header(client: Client) -> None:
    assert _status(client, "attacker.example", "http://localhost/metrics") == 200
    assert _status(client, "localhost", "http://attacker.example?x=/metrics") == 421


def test_d_the_listen_host_is_allowed() -> None:
    assert Hosts("Radiology.example", tuple).allow("radiology.example")
    assert not Hosts("", tuple).allow("radiology.example")
