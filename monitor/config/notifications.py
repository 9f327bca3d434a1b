"""The section `notify`: webhook and heartbeat, and their URLs, which may hold a token."""

import re
from pathlib import Path
from urllib.parse import urlsplit

from monitor.config.config import Heartbeat, Webhook
from monitor.settings.kinds import Flag, Secret
from monitor.settings.quantities import Duration
from monitor.settings.section import Section
from monitor.settings.setting_files import secret_file, secret_in

_VISIBLE = re.compile(r"[!-~]+")
_HOST = re.compile(r"[A-Za-z0-9._:-]+")


def read_address(section: Section, folder: Path) -> str | None:
    """Return the `url` of a section, or what stands in the file `url_file`; None after a mistake.

    `allow_http` must have been asked for by the caller: here it is only looked at.
    """
    inline = section.get("url", Secret("an address that begins with https://"), None)
    file = secret_file(section, "url_file", folder, "an address")
    if not section.given or not section.clean:
        return None
    if inline is not None and file is not None:
        section.tell("url", "either url or url_file", "both")
        return None
    if inline is None and file is None:
        section.tell_all("url or url_file", "neither")
        return None
    if inline is not None:
        section.findings.remarks.append(
            f"{section.at('url')}: an address that holds a token is safer in a file of its own, with url_file"
        )
        return inline
    assert file is not None  # noqa: S101  one of them is there
    address = secret_in(section, "url_file", file, "an address")
    return None if address is None else address.strip()


def check_address(section: Section, key: str, address: str, *, allow_http: bool) -> None:
    """Note a mistake in an address, without showing it. What passes here, whoever calls the address can use."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname, parts.port
    except ValueError:
        section.tell(key, "an address such as https://host/path", "one that cannot be read, and is not shown")
        return
    if parts.scheme not in {"http", "https"} or not host or not _VISIBLE.fullmatch(address):
        section.tell(key, "an address such as https://host/path", "something else, which is not shown")
    elif not _HOST.fullmatch(host) or port == 0:
        expected = "an address with a host of letters, digits, dots and dashes, and a port above 0 if any"
        section.tell(key, expected, "another, which is not shown")
    elif parts.fragment:
        section.tell(key, "an address without a part after #, which is never sent", "one with it")
    elif parts.scheme == "http" and not allow_http:
        section.tell(key, "an address that begins with https://, or allow_http: true beside it", "one with http://")


def check_public_address(section: Section, key: str, address: str) -> None:
    """Note an address with a password in it, where everybody will see it."""
    if "@" in address.partition("://")[2].partition("/")[0]:
        section.tell(key, "an address without a user and password, since alerts show it", "one with them")


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
