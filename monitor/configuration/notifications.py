"""The section `notify`: who is told beside Prometheus."""

from pathlib import Path

from monitor.configuration.addresses import check_address, read_address
from monitor.configuration.config import Heartbeat, Webhook
from monitor.configuration.number_kinds import Duration
from monitor.configuration.section import Section
from monitor.configuration.text_kinds import Flag

_TIMEOUT = Duration(0.1, 300.0)
_DEFAULT = Webhook("")


def read_webhook(section: Section, folder: Path) -> Webhook | None:
    """Return where alerts are posted to; None when nowhere."""
    found = _read(section, folder)
    if found is None:
        return None
    url, timeout, allow_http, allow_link_local = found
    return Webhook(url, timeout, allow_http, allow_link_local)


def read_heartbeat(section: Section, folder: Path) -> Heartbeat | None:
    """Return what is called after evaluations; None when nothing is."""
    every = section.get("every", Duration(1.0, 86400.0), Heartbeat("").every_seconds)
    found = _read(section, folder)
    if found is None:
        return None
    url, timeout, allow_http, allow_link_local = found
    return Heartbeat(url, every, timeout, allow_http, allow_link_local)


def _read(section: Section, folder: Path) -> tuple[str, float, bool, bool] | None:
    url = read_address(section, folder)
    timeout = section.get("timeout", _TIMEOUT, _DEFAULT.timeout_seconds)
    allow_http = section.get("allow_http", Flag(), _DEFAULT.allow_http)
    allow_link_local = section.get("allow_link_local", Flag(), _DEFAULT.allow_link_local)
    if url is None:
        return None
    check_address(section, "url" if section.has("url") else "url_file", url, allow_http=allow_http)
    return url, timeout, allow_http, allow_link_local
