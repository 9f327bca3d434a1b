"""The web configuration in force: read again when its file or a certificate changes, and kept when the new one is bad."""

import logging
import ssl
import stat
from dataclasses import dataclass, field
from pathlib import Path

from monitor.errors import ConfigError
from monitor.web.server.tls import context_of
from monitor.web.web_config import ClientAuth, WebConfig, read_web_config

log = logging.getLogger("cpcmon")

_Looks = tuple[tuple[int, ...] | None, ...]


@dataclass(frozen=True, slots=True)
class InForce:
    """What a new connection is served by."""

    config: WebConfig = field(default_factory=WebConfig)
    context: ssl.SSLContext | None = None
    """None for plain HTTP."""


class WebSettings:
    """Looks at the files when asked, and reads them when they changed. Used on one thread at a time."""

    def __init__(self, path: Path | None) -> None:
        """Read the file; raises ConfigError."""
        self._path = path
        self.ok = True
        """Whether the files as they are now are in force."""
        self._files: tuple[Path, ...] = ()
        self._looks: _Looks = ()
        self._in_force = InForce() if path is None else self._read(path)

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self._in_force.context is not None

    def current(self) -> InForce:
        """Return what is in force now."""
        if self._path is not None and _looks_of(self._files) != self._looks:
            self._read_again(self._path)
        return self._in_force

    def _read_again(self, path: Path) -> None:
        try:
            new = self._read(path)
            _check_no_weaker(path, self._in_force.config, new.config)
        except ConfigError as error:
            self.ok = False
            log.error(  # noqa: TRY400  the operator's mistake, not ours: where it was raised helps nobody
                "the web configuration was changed and is not used, the one before stays in force: %s", error
            )
            return
        self.ok = True
        self._in_force = new
        log.info("the web configuration was changed and is in force")

    def _read(self, path: Path) -> InForce:
        """Read a file and the certificates that it names; raises ConfigError.

        Each is looked at before it is read: what changes meanwhile is noticed the next time.
        """
        self._files, self._looks = (path,), _looks_of((path,))
        _check_is_a_file(path)
        config = read_web_config(path)
        if config.tls is None:
            return InForce(config)
        named = (config.tls.cert_file, config.tls.key_file, config.tls.client_ca_file)
        certificates = tuple(file for file in named if file is not None)
        self._files, self._looks = (path, *certificates), self._looks + _looks_of(certificates)
        for file in certificates:
            _check_is_a_file(file)
        return InForce(config, context_of(config.tls))


def _looks_of(files: tuple[Path, ...]) -> _Looks:
    return tuple(_look_of(file) for file in files)


def _look_of(path: Path) -> tuple[int, ...] | None:
    try:
        look = path.stat()
    except OSError:
        return None
    return look.st_dev, look.st_ino, look.st_size, look.st_mtime_ns, look.st_ctime_ns


def _check_is_a_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ConfigError(f"{path}: expected a file, found {(error.strerror or 'none').lower()}") from error
    # Reading a pipe would wait for whoever writes to it, and all clients with it.
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{path}: expected a file, found something else")


def _check_no_weaker(path: Path, old: WebConfig, new: WebConfig) -> None:
    """Refuse a change that lets in who was kept out by a whole kind of protection.

    A file caught half-written looks like one from which somebody deleted the rest.
    """
    lost = None
    if old.tls is not None and new.tls is None:
        lost = "tls_server_config"
    elif old.users and not new.users:
        lost = "basic_auth_users"
    elif old.tls is not None and new.tls is not None:
        if old.tls.client_auth is ClientAuth.REQUIRED and new.tls.client_auth is not ClientAuth.REQUIRED:
            lost = f"client_auth_type {ClientAuth.REQUIRED}"
        elif old.tls.client_allowed_sans and not new.tls.client_allowed_sans:
            lost = "client_allowed_sans"
    if lost is not None:
        raise ConfigError(f"{path}: expected {lost} as before, found none: to do without it, start cpcmon anew")
