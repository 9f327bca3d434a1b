"""`read_config` reads a configuration file, or raises one ConfigError that lists every problem; `ConfigWatch` sees changes."""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from monitor.config.config import Config, Heartbeat, IngestOptions, Limits, Storage, Webhook
from monitor.config.cross_checks import (
    check_fed,
    check_minimum,
    check_names,
    check_overlaps,
    check_realised,
    check_segments,
    warn_about_ages,
)
from monitor.config.models import CronProblem, read_model
from monitor.config.source_settings import read_source
from monitor.settings.kinds import Duration, FilePath, Flag, Integer, ListOf, Secret, SizeSetting, Text
from monitor.settings.section import Section
from monitor.settings.setting_files import (
    SettingsDocument,
    file_stamp,
    open_document,
    open_file,
    read_line,
    secret_file,
)

MOST_MODELS = 50
MOST_SOURCES = 50
_LONGEST = 366 * 86400.0
_HOST = Text('a host name without a port, or "*"', re.compile(r"\*|[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_.])?"))


def read_config(file: Path, cron_problem: CronProblem | None = None) -> Config:
    """Read a configuration; raises ConfigError. Opens secret files, but no references.

    `cron_problem` checks crontab lines; without it they are not checked.
    """
    document = open_document(file)
    config = read_document(document, cron_problem)
    document.finish()
    return config


def read_document(document: SettingsDocument, cron_problem: CronProblem | None = None) -> Config:
    """Read all settings of an open document. The result is valid only if `finish` does not raise."""
    root, folder = document.root, document.file.parent
    storage_section = root.section("storage", required=True)
    storage = _storage(storage_section, folder)
    sources = [(one, read_source(one, folder)) for one in root.sections("sources", least=1, most=MOST_SOURCES)]
    models = [
        (one, read_model(one, folder, cron_problem)) for one in root.sections("models", least=1, most=MOST_MODELS)
    ]
    ingest = _ingest(root.section("ingest"))
    limits_section = root.section("limits")
    limits = _limits(limits_section)
    notify = root.section("notify")
    webhook = _webhook(notify.section("webhook", optional=True), folder)
    heartbeat = _heartbeat(notify.section("heartbeat", optional=True), folder)
    web_hosts = root.section("web").get("hosts", ListOf(_HOST, "a list of host names"), ())
    runbooks = root.get("runbooks", Text("a URL or a path"), "docs/runbooks/")
    _check_runbooks(root, runbooks)
    check_names(sources)
    check_names(models)
    check_fed(sources, models)
    check_overlaps(storage_section, storage, sources)
    check_realised(models, sources)
    check_minimum(sources, models)
    check_segments(limits_section, limits, models)
    warn_about_ages(sources, models)
    return Config(
        storage=storage,
        sources=tuple(source for _, source in sources if source is not None),
        models=tuple(model for _, model in models if model is not None),
        ingest=ingest,
        limits=limits,
        webhook=webhook,
        heartbeat=heartbeat,
        web_hosts=web_hosts,
        runbooks=runbooks if runbooks.endswith("/") else f"{runbooks}/",
        digest=document.digest,
        file=document.file,
        lines=MappingProxyType(document.findings.lines),
        remarks=tuple(document.findings.remarks),
        settings=tuple(root.effective()),
    )


def _storage(section: Section, folder: Path) -> Storage:
    path = section.get("path", FilePath(folder, "the path of a directory"))
    return Storage(path, section.get("allow_network", Flag(), False))


def _ingest(section: Section) -> IngestOptions:
    default = IngestOptions()
    return IngestOptions(
        catching_up_bytes=section.get("catching_up_bytes", SizeSetting(1 << 10, 1 << 40), default.catching_up_bytes),
        catching_up_files=section.get("catching_up_files", Integer(1, 100_000_000), default.catching_up_files),
        catching_up_age_seconds=section.get(
            "catching_up_age", Duration(1.0, _LONGEST), default.catching_up_age_seconds
        ),
        backup_seconds=section.get("backup_every", Duration(60.0, _LONGEST), default.backup_seconds),
    )


def _limits(section: Section) -> Limits:
    return Limits(
        window_bytes=section.get("window_bytes", SizeSetting(1 << 20, 1 << 40), Limits().window_bytes),
        segments=section.get("segments", Integer(0, 100_000), Limits().segments),
    )


_VISIBLE = re.compile(r"[!-~]+")
_URL_HOST = re.compile(r"[A-Za-z0-9._:-]+")
_DEFAULT = Webhook("")


def _webhook(section: Section, folder: Path) -> Webhook | None:
    found = _http_target(section, folder)
    if found is None:
        return None
    url, timeout, allow_http, allow_link_local = found
    return Webhook(url, timeout, allow_http, allow_link_local)


def _heartbeat(section: Section, folder: Path) -> Heartbeat | None:
    every = section.get("every", Duration(1.0, 86400.0), Heartbeat("").every_seconds)
    found = _http_target(section, folder)
    if found is None:
        return None
    url, timeout, allow_http, allow_link_local = found
    return Heartbeat(url, every, timeout, allow_http, allow_link_local)


def _http_target(section: Section, folder: Path) -> tuple[str, float, bool, bool] | None:
    url = _url(section, folder)
    timeout = section.get("timeout", Duration(0.1, 300.0), _DEFAULT.timeout_seconds)
    allow_http = section.get("allow_http", Flag(), _DEFAULT.allow_http)
    allow_link_local = section.get("allow_link_local", Flag(), _DEFAULT.allow_link_local)
    if url is None:
        return None
    _check_url(section, "url" if section.has("url") else "url_file", url, allow_http=allow_http)
    return url, timeout, allow_http, allow_link_local


def _url(section: Section, folder: Path) -> str | None:
    """Return the `url` of a section, or the content of its `url_file`; None after a problem."""
    inline = section.get("url", Secret("a URL that starts with https://"), None)
    file = secret_file(section, "url_file", folder, "a URL")
    if not section.given or not section.clean:
        return None
    if inline is not None and file is not None:
        section.report("url", "either url or url_file", "both")
        return None
    if inline is not None:
        section.findings.remarks.append(
            f"{section.at('url')}: a URL with a token is safer in a file of its own, with url_file"
        )
        return inline
    if file is None:
        section.report_group("url or url_file", "neither")
        return None
    url = read_line(section, "url_file", file, "a URL")
    return None if url is None else url.strip()


def _check_url(section: Section, key: str, url: str, *, allow_http: bool) -> None:
    """Report a problem with a URL, without showing it."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        section.report(key, "a URL such as https://host/path", "an invalid one, not shown")
        return
    if parts.scheme not in {"http", "https"} or not host or not _VISIBLE.fullmatch(url):
        section.report(key, "a URL such as https://host/path", "another value, not shown")
    elif not _URL_HOST.fullmatch(host) or port == 0:
        expected = "a URL with a host of letters, digits, dots and dashes, and a port above 0 if any"
        section.report(key, expected, "another one, not shown")
    elif parts.fragment:
        section.report(key, "a URL without a #fragment, which is never sent", "one with a fragment")
    elif parts.scheme == "http" and not allow_http:
        section.report(key, "a URL that starts with https://, or allow_http: true", "one with http://")


def _check_runbooks(section: Section, url: str) -> None:
    if "@" in url.partition("://")[2].partition("/")[0]:
        section.report("runbooks", "a URL without user and password, since alerts show it", "one with them")


EVERY_SECONDS = 2.0
"""The interval between checks."""
_MOST_WATCHED_BYTES = 2 << 20
"""More than the limit on a configuration file."""


class ConfigWatch:
    """Watches a configuration file and its references, for `--config.watch`. For one thread; `now` is a monotonic time.

    Kubernetes replaces a ConfigMap by switching the symbolic link `..data`. So links are followed and contents compared.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._references: tuple[Path, ...] = ()
        self._loaded = self._previous = self._read()
        self._checked = 0.0

    def mark_read(self) -> None:
        """Call right before the configuration is read."""
        self._loaded = self._previous = self._read()

    def watch_references(self, references: Iterable[Path | None]) -> None:
        """Call right before the references are opened; watches them too. They are too large to hash."""
        self._references = tuple(path for path in references if path is not None)
        self._loaded = self._previous = (self._loaded[0], *map(file_stamp, self._references))

    def changed(self, now: float) -> bool:
        """Return True once per change, after two equal checks in a row."""
        if now - self._checked < EVERY_SECONDS:
            return False
        self._checked = now
        before, self._previous = self._previous, self._read()
        # Twice the same: a file half-written by an editor is not read.
        if self._previous == self._loaded or self._previous != before:
            return False
        self._loaded = self._previous
        return True

    def _read(self) -> tuple[object, ...]:
        return (_content(self._file), *map(file_stamp, self._references))


def _content(path: Path) -> object:
    try:
        with open_file(path) as file:
            return hashlib.sha256(file.read(_MOST_WATCHED_BYTES)).digest()
    except OSError as error:
        return error.errno
