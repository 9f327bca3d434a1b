"""Where the server listens: `127.0.0.1:9877`, `:9877` for every interface, `[::1]:9877`."""

import errno
import ipaddress
import re
import socket
from dataclasses import dataclass

from monitor.errors import ServerError, UsageError

_FORM = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.-]+)?)\]|([A-Za-z0-9_.-]*)):([0-9]{1,5})")
_BACKLOG = 128


@dataclass(frozen=True, slots=True)
class Address:
    """A host, empty for every interface, and a port, 0 for any that is free."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return it as it is written."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Return where to listen; raises UsageError."""
    form = _FORM.fullmatch(text)
    if form is None or int(form.group(3)) > 65535:
        raise UsageError(f"web.listen-address: expected HOST:PORT, :PORT or [IPv6]:PORT, found {text!r}")
    return Address(form.group(1) or form.group(2) or "", int(form.group(3)))


def problem_of(text: str) -> str | None:
    """Say what is wrong with an address; None when nothing is."""
    try:
        parse_address(text)
    except UsageError as error:
        return str(error)
    return None


def client_of(address: str) -> str:
    """Return whose address it is: an IPv4 address, also as IPv6 shows it, or the /64 that one host has of IPv6."""
    found = ipaddress.ip_address(address)
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.ip_network((int(found), 64), strict=False))
    return str(found)


def listen(address: Address) -> socket.socket:
    """Return a socket that listens there and never blocks; raises ServerError with a sentence."""
    try:
        listener = _bound(address)
    except (OSError, UnicodeError) as error:
        raise ServerError(_sentence(address, error)) from error
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


def _sentence(address: Address, error: OSError | UnicodeError) -> str:
    if isinstance(error, UnicodeError):
        return f"web: expected {address} to be an address of this machine, found a name that no machine can have"
    if error.errno == errno.EADDRINUSE:
        return f"web: expected {address} to be free, found it in use: stop the other program, or choose another with --web.listen-address"
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return f"web: expected {address} to be an address of this machine, found that it is not"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return f"web: expected leave to listen on {address}, found none"
    return f"web: expected to listen on {address}, found {error.strerror or type(error).__name__}"
