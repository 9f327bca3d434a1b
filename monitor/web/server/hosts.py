"""For which hosts requests are answered, against DNS rebinding.

A web page of somebody else can let its own host name resolve to this machine. The browser of whoever looks at it then
counts cpcmon as that page's own site, and lets it read everything. It sends the page's host name, which is not one of ours.
"""

import ipaddress
import re
import socket
from collections.abc import Callable, Collection

ANY = "*"
_AUTHORITY = re.compile(r"(?:\[([0-9A-Fa-f:.]+(?:%[A-Za-z0-9_.~-]+)?)\]|([A-Za-z0-9_.-]+))(?::[0-9]{0,5})?")


class Hosts:
    """The hosts that this server answers for."""

    def __init__(self, listening: str, named: Callable[[], Collection[str]]) -> None:
        self._own = {_normal(name) for name in ("localhost", listening, socket.gethostname())}
        self._named = named
        """What `web.hosts` names; it may change with a reload."""

    def allow(self, host: str) -> bool:
        """Tell whether requests for a host, as `host_in` returns it, are answered."""
        # An address needs no DNS, and so cannot be rebound. Probes of Kubernetes and many scrapes go to addresses.
        if _is_ip_address(host) or host in self._own:
            return True
        named = {_normal(name) for name in self._named()}
        return host in named or ANY in named


def host_in(authority: str) -> str | None:
    """Return the host of `HOST` or `HOST:PORT` as names are compared; None where there is none."""
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return None
    address, name = found.groups()
    if address is not None:
        return str(address) if _is_ip_address(address) else None
    return _normal(name) or None


def _normal(name: str) -> str:
    """Return a name without what makes no difference in DNS: case, and a dot at the end."""
    return name.lower().removesuffix(".")


def _is_ip_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
