"""Where a URL of the configuration may lead, and what is shown of it."""

import base64
import socket
from typing import Any

import pytest

from monitor.errors import UsageError
from monitor.sinks.http_sender import Target, is_refused, places_of

CANARY = "s3cr3t"


def test_a_url_is_split_into_what_is_needed() -> None:
    """Ports and paths have their defaults."""
    assert Target.of("https://hook.example") == Target("hook.example", 443, "/", secure=True, authorization=None)
    full = Target.of("http://hook.example:8080/a/b?c=d", allow_http=True)
    assert (full.host_header, full.path, full.secure) == ("hook.example:8080", "/a/b?c=d", False)
    assert Target.of("https://[2001:db8::1]/x").host_header == "[2001:db8::1]"
    assert Target.of("https://hook.example:443/x").host_header == "hook.example"


@pytest.mark.parametrize(
    ("userinfo", "sent"),
    [
        pytest.param("user:pass@", b"user:pass", id="both"),
        pytest.param("user@", b"user:", id="user alone"),
        pytest.param("us%40er:p%3Aa%2Fss@", b"us@er:p:a/ss", id="escaped"),
        pytest.param("user:p:a@", b"user:p:a", id="colon in the password"),
    ],
)
def test_d3_user_and_password_become_a_header(userinfo: str, sent: bytes) -> None:
    """And are no part of the path or of the host."""
    target = Target.of(f"https://{userinfo}hook.example/x")
    assert target.authorization == "Basic " + base64.b64encode(sent).decode()
    assert (target.host_header, target.path) == ("hook.example", "/x")


def test_d3_a_target_shown_by_mistake_shows_no_secret() -> None:
    """Neither the password nor the path, in which a token may stand."""
    shown = repr(Target.of(f"https://user:{CANARY}@hook.example/{CANARY}?key={CANARY}"))
    assert CANARY not in shown
    assert base64.b64encode(f"user:{CANARY}".encode()).decode() not in shown


@pytest.mark.parametrize(
    "url",
    [
        pytest.param(f"http://user:{CANARY}@hook.example/", id="not encrypted"),
        pytest.param(f"ftp://user:{CANARY}@hook.example/", id="another protocol"),
        pytest.param(f"file:///etc/{CANARY}", id="a file"),
        pytest.param(f"hook.example/{CANARY}", id="no protocol"),
        pytest.param(f"https:///{CANARY}", id="no host"),
        pytest.param(f"https://user:{CANARY}@hook.example:0/", id="port 0"),
        pytest.param(f"https://user:{CANARY}@hook.example:port/", id="no port"),
        pytest.param(f"https://user:{CANARY}@[::1/", id="half a bracket"),
        pytest.param(f"https://hook.example/{CANARY}\r\nX-Injected: 1", id="newline"),
        pytest.param(f"https://hook.example/{CANARY} HTTP/1.1", id="space"),
        pytest.param(f"https://hoök.example/{CANARY}", id="letters beyond ASCII"),
        pytest.param(f"https://ho$ok.example/{CANARY}", id="odd host"),
        pytest.param(f"https://hook.example/#{CANARY}", id="fragment"),
        pytest.param("", id="empty"),
    ],
)
def test_d3_a_url_that_cannot_be_used_is_refused_without_being_shown(url: str) -> None:
    """Three parts, and none of them a secret."""
    with pytest.raises(UsageError, match=r"^url: expected .*found") as refusal:
        Target.of(url)
    assert CANARY not in str(refusal.value)
    assert refusal.value.__cause__ is None


@pytest.mark.parametrize(
    "address",
    [
        *("169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%eth0", "febf::1", "fd00:ec2::254"),
        *("224.0.0.1", "239.1.1.1", "ff02::1", "0.0.0.0", "::"),  # noqa: S104 - nothing is bound
        *("::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "::169.254.169.254", "2002:a9fe:a9fe::1", "::ffff:0.0.0.0"),
        *("100.100.100.200", "168.63.129.16", "192.0.0.192"),
    ],
)
def test_d14_addresses_that_no_notification_is_meant_for_are_refused(address: str) -> None:
    """Also when they are written as ones of IPv6."""
    assert is_refused(address)


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "10.1.2.3", "192.168.0.1", "172.16.0.1", "93.184.216.34", "::1", "fd00::1", "2001:db8::1"]
)
def test_addresses_of_this_machine_and_of_the_house_are_allowed(address: str) -> None:
    """Hospitals have their receivers inside."""
    assert not is_refused(address)


def _resolved(*addresses: str) -> Any:
    def resolve(_host: str, port: int, **_: object) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    return resolve


def test_d14_of_several_addresses_only_the_good_ones_are_left() -> None:
    """And with allow_link_local all of them."""
    target = Target.of("https://hook.example/")
    resolve = _resolved("169.254.169.254", "10.0.0.1")
    places, refused = places_of(target, resolve, allow_link_local=False)
    assert ([place.sockaddr for place in places], refused) == ([("10.0.0.1", 443)], 1)
    places, refused = places_of(target, resolve, allow_link_local=True)
    assert (len(places), refused) == (2, 0)
