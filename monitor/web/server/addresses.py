"""The listen address, the client's address, and the host names that the server answers for.

Host names are checked against DNS rebinding: a foreign web page can let its own host name resolve to this machine, and
the browser would then let it read cpcmon's pages. Such a request carries the foreign host name.
"""

import errno
import ipaddress
import re
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass

from monitor.errors import Problem, ServerError, UsageError

_FORM = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?)\]|([A-Za-z0-9_.-]*)):([0-9]{1,5})")
_BACKLOG = 128


@dataclass(frozen=True, slots=True)
class Address:
    """A host, empty for every interface, and a port, 0 for any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return it as HOST:PORT."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse a listen address; raises UsageError."""
    form = _FORM.fullmatch(text)
    if form is None or int(form.group(3)) > 65535:
        raise UsageError(Problem("web.listen-address", "HOST:PORT, :PORT or [IPv6]:PORT", repr(text)))
    return Address(form.group(1) or form.group(2) or "", int(form.group(3)))


def client_of(address: str) -> str:
    """Return the client of an address: the IPv4 address, also when mapped to IPv6, or the /64 network of an IPv6 one."""
    found = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.ip_network((int(found), 64), strict=False))
    return str(found)


def listen(address: Address) -> socket.socket:
    """Return a listening, non-blocking socket; raises ServerError."""
    try:
        listener = _bound(address)
    except (OSError, UnicodeError) as error:
        raise ServerError(_problem(address, error)) from error
    listener.setblocking(False)
    return listener


def _bound(address: Address) -> socket.socket:
    if address.host:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((address.host, address.port), family=family, backlog=_BACKLOG)
    try:
        both = socket.has_dualstack_ipv6()
        return socket.create_server(("", address.port), family=socket.AF_INET6, dualstack_ipv6=both, backlog=_BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise
        # A kernel without IPv6.
        return socket.create_server(("", address.port), family=socket.AF_INET, backlog=_BACKLOG)


def _problem(address: Address, error: OSError | UnicodeError) -> Problem:
    local = f"{address} to be an address of this machine"
    if isinstance(error, UnicodeError):
        return Problem("web", local, "an invalid host name")
    if error.errno == errno.EADDRINUSE:
        advice = "stop the other program, or choose another with --web.listen-address or --web.probe-address"
        return Problem("web", f"{address} to be free", f"it in use: {advice}")
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return Problem("web", local, "another host's")
    if error.errno in {errno.EACCES, errno.EPERM}:
        return Problem("web", f"permission to listen on {address}", "none")
    return Problem("web", f"to listen on {address}", error.strerror or type(error).__name__)


ANY = "*"
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.~-]+)?)\]|([A-Za-z0-9_.-]+))(?::[0-9]{0,5})?")


class Hosts:
    """The host names that the server answers for."""

    def __init__(self, listening: str, named: Callable[[], Collection[str]]) -> None:
        self._own = {_normal(name) for name in ("localhost", listening, socket.gethostname())}
        self._named = named
        """The names in `web.hosts`, which a reload may change."""

    def allow(self, host: str) -> bool:
        """Return whether a host, as returned by `host_in`, is allowed."""
        # An IP address cannot be rebound. Kubernetes probes and many scrapes use addresses.
        if _is_ip_address(host) or host in self._own:
            return True
        named = {_normal(name) for name in self._named()}
        return host in named or ANY in named


def host_in(authority: str) -> str | None:
    """Return the normalized host of `HOST` or `HOST:PORT`; None when malformed."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return None
    address, name = found.groups()
    if address is not None:
        return str(address) if _is_ip_address(address) else None
    return _normal(name) or None


def _normal(name: str) -> str:
    """Return a host name in lower case, without a trailing dot."""
    return name.lower().removesuffix(".")


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
