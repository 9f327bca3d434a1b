"""Where a URL of the configuration leads: its parts, and the addresses behind its name that may be connected to.

A name may resolve to anything, also to the service that hands a cloud machine its credentials. So the addresses are
looked at after resolution, and whoever connects takes one of those that were looked at and never asks again.
"""

import base64
import ipaddress
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import unquote_to_bytes, urlsplit

from monitor.configuration.config import Config
from monitor.errors import UsageError

Resolver = Callable[..., list[tuple[Any, ...]]]
"""`socket.getaddrinfo`, or what a test puts in its place."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# The services of cloud providers that hand out credentials and do not answer on a link-local address.
_METADATA = frozenset(
    ipaddress.ip_address(one)
    for one in ("fd00:ec2::254", "fd20:ce::254", "100.100.100.200", "168.63.129.16", "192.0.0.192")
)
_EMBEDDING = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))
"""Networks of IPv6 whose last four bytes are an address of IPv4, beside those that `ipaddress` knows."""


@dataclass(frozen=True, slots=True)
class Target:
    """The parts of a URL. Only the host is ever shown: a token may stand in each of the others."""

    host: str
    port: int
    path: str = field(repr=False)
    """With the query."""
    secure: bool
    authorization: str | None = field(repr=False)
    """What `user:password@` asks to be sent as a header; None without it."""

    @classmethod
    def of(cls, url: str, *, allow_http: bool = False) -> Self:
        """Return the parts of a URL; raises UsageError, which never shows the URL."""
        # Before anything is split: urlsplit drops tabs and newlines without a word.
        if not re.fullmatch(r"[!-~]+", url):
            raise UsageError("url: expected visible ASCII characters only, found others")
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise UsageError("url: expected https://host/path, found something that is no URL") from None
        if parts.scheme not in {"https", "http"}:
            raise UsageError("url: expected it to start with https://, found another beginning")
        if parts.scheme == "http" and not allow_http:
            raise UsageError("url: expected https://, found http://: alerts would go unencrypted; allow_http insists")
        if not parts.hostname or port == 0:
            raise UsageError("url: expected a host, and a port above 0 if any, found none")
        if not re.fullmatch(r"[A-Za-z0-9._:-]+", parts.hostname):
            raise UsageError("url: expected a host of letters, digits, dots and dashes, found others")
        if parts.fragment:
            raise UsageError("url: expected no part after #, which is never sent, found one")
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        secure = parts.scheme == "https"
        return cls(parts.hostname, port or (443 if secure else 80), path, secure, _authorization(parts.netloc))

    @property
    def host_header(self) -> str:
        """What the Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.secure else 80) else f"{host}:{self.port}"


def check_targets(config: Config) -> None:
    """Refuse addresses that could not be called; asked before anything that calls them is replaced.

    A configuration that was read from a file holds none: there they are mistakes with a line, told with all the others.
    """
    for name, one in (("webhook", config.webhook), ("heartbeat", config.heartbeat)):
        if one is not None:
            try:
                Target.of(one.url, allow_http=one.allow_http)
            except UsageError as error:
                raise UsageError(f"notify.{name}.{error}") from error


def _authorization(netloc: str) -> str | None:
    userinfo, at, _ = netloc.rpartition("@")
    if not at:
        return None
    user, _, password = userinfo.partition(":")
    return "Basic " + base64.b64encode(unquote_to_bytes(user) + b":" + unquote_to_bytes(password)).decode()


@dataclass(frozen=True, slots=True)
class Place:
    """A resolved address, ready to be connected to."""

    family: int
    sockaddr: tuple[Any, ...]


def places_of(target: Target, resolve: Resolver, *, allow_link_local: bool) -> tuple[list[Place], int]:
    """Resolve a target's name once; return where one may connect to, and how many addresses were refused."""
    found = resolve(target.host, target.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    places = [Place(family, sockaddr) for family, _, _, _, sockaddr in found]
    allowed = [place for place in places if allow_link_local or not is_refused(place.sockaddr[0])]
    return allowed, len(places) - len(allowed)


def is_refused(text: str) -> bool:
    """Tell whether an address is one that no notification is meant for: link-local, metadata, multicast, unspecified."""
    address: Address = ipaddress.ip_address(text.partition("%")[0])
    return any(
        one.is_link_local or one.is_multicast or one.is_unspecified or one in _METADATA for one in _meant_by(address)
    )


def _meant_by(address: Address) -> list[Address]:
    """Return the address, and those of IPv4 that it stands for when it is one of IPv6."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    inner: list[Address] = [one for one in (address.ipv4_mapped, address.sixtofour) if one is not None]
    # ::1 is this machine, and not 0.0.0.1.
    if not address.is_loopback and any(address in network for network in _EMBEDDING):
        inner.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return [address, *inner]
