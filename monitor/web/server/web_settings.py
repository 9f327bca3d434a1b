"""The web configuration in force and its TLS context, reloaded when its file or a certificate changes."""

import ipaddress
import logging
import ssl
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitor.errors import ConfigError, Problem
from monitor.web.web_config import ClientAuth, TlsConfig, TlsVersion, WebConfig, read_web_config

log = logging.getLogger("cpcmon")

_Stamps = tuple[tuple[int, ...] | None, ...]


@dataclass(frozen=True, slots=True)
class ActiveWebConfig:
    """The web configuration for new connections."""

    config: WebConfig = field(default_factory=WebConfig)
    context: ssl.SSLContext | None = None
    """None for plain HTTP."""


class WebSettings:
    """Reloads the files when they changed. Used on one thread at a time."""

    def __init__(self, path: Path | None) -> None:
        """Read the file; raises ConfigError."""
        self._path = path
        self.ok = True
        """Whether the current files are in force."""
        self._files: tuple[Path, ...] = ()
        self._stamps: _Stamps = ()
        self._in_force = ActiveWebConfig() if path is None else self._read(path)

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self._in_force.context is not None

    def current(self) -> ActiveWebConfig:
        """Return the configuration in force, reloaded if the files changed."""
        if self._path is not None and _stamps_of(self._files) != self._stamps:
            self._read_again(self._path)
        return self._in_force

    def _read_again(self, path: Path) -> None:
        try:
            new = self._read(path)
            _check_no_weaker(path, self._in_force.config, new.config)
        except ConfigError as error:
            self.ok = False
            log.error(  # noqa: TRY400  a traceback does not help the operator
                "web configuration reload failed, keeping the previous one: %s", error
            )
            return
        self.ok = True
        self._in_force = new
        log.info("web configuration reloaded")

    def _read(self, path: Path) -> ActiveWebConfig:
        """Read the file and its certificates; raises ConfigError.

        Stamps are taken before reading, so that a change meanwhile triggers another reload.
        """
        self._files, self._stamps = (path,), _stamps_of((path,))
        _check_is_a_file(path)
        config = read_web_config(path)
        if config.tls is None:
            return ActiveWebConfig(config)
        named = (config.tls.cert_file, config.tls.key_file, config.tls.client_ca_file)
        certificates = tuple(file for file in named if file is not None)
        self._files, self._stamps = (path, *certificates), self._stamps + _stamps_of(certificates)
        for file in certificates:
            _check_is_a_file(file)
        return ActiveWebConfig(config, context_of(config.tls))


def _stamps_of(files: tuple[Path, ...]) -> _Stamps:
    return tuple(_stamp_of(file) for file in files)


def _stamp_of(path: Path) -> tuple[int, ...] | None:
    try:
        stat_result = path.stat()
    except OSError:
        return None
    return (
        stat_result.st_dev,
        stat_result.st_ino,
        stat_result.st_size,
        stat_result.st_mtime_ns,
        stat_result.st_ctime_ns,
    )


def _check_is_a_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ConfigError(Problem(str(path), "a file", (error.strerror or "none").lower())) from error
    # Reading a pipe would block all clients.
    if not stat.S_ISREG(mode):
        raise ConfigError(Problem(str(path), "a file", "another kind of file"))


def _check_no_weaker(path: Path, old: WebConfig, new: WebConfig) -> None:
    """Reject a reload that removes a protection: a half-written file looks the same."""
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
        raise ConfigError(Problem(str(path), f"{lost} as before", "none: to remove it, restart cpcmon"))


_VERSIONS = {TlsVersion.TLS12: ssl.TLSVersion.TLSv1_2, TlsVersion.TLS13: ssl.TLSVersion.TLSv1_3}
_VERIFYING = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.IF_GIVEN: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


def context_of(tls: TlsConfig) -> ssl.SSLContext:
    """Return the TLS context for new connections; raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.min_version]
    context.maximum_version = _VERSIONS[tls.max_version]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Never prompt for a passphrase on the terminal.
        context.load_cert_chain(tls.cert_file, tls.key_file, password=lambda: b"")
    except (OSError, ValueError) as error:
        pair = f"{tls.cert_file} and {tls.key_file}"
        raise ConfigError(Problem(pair, "a certificate and its key in PEM", _reason(error))) from error
    if tls.client_ca_file is not None:
        try:
            context.load_verify_locations(cafile=tls.client_ca_file)
        except (OSError, ValueError) as error:
            expected = "certificates of authorities in PEM"
            raise ConfigError(Problem(str(tls.client_ca_file), expected, _reason(error))) from error
        # As in Go, any certificate in the file is trusted, also an intermediate one.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_mode = _VERIFYING[tls.client_auth]
    return context


def is_allowed(tls: TlsConfig, connection: ssl.SSLObject) -> bool:
    """Return whether a client with a verified certificate may connect."""
    if not tls.client_allowed_sans:
        return True
    # Pairs such as ("DNS", "prometheus.example").
    names: Any = (connection.getpeercert() or {}).get("subjectAltName", ())
    shown = {_address(value) if kind == "IP Address" else value for kind, value in names}
    return not shown.isdisjoint(tls.client_allowed_sans)


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        return text


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "neither").lower().replace("_", " ")
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return type(error).__name__
