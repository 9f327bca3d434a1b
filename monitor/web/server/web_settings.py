"""The web configuration in force and its TLS context, reloaded when its file or a certificate changes."""

import ipaddress
import logging
import ssl
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitor.errors import ConfigError
from monitor.web.web_config import ClientAuth, TlsConfig, TlsVersion, WebConfig, read_web_config

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


_VERSIONS = {TlsVersion.TLS12: ssl.TLSVersion.TLSv1_2, TlsVersion.TLS13: ssl.TLSVersion.TLSv1_3}
_VERIFYING = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.IF_GIVEN: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


def context_of(tls: TlsConfig) -> ssl.SSLContext:
    """Read the certificates into what new connections need; raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[tls.min_version]
    context.maximum_version = _VERSIONS[tls.max_version]
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["http/1.1"])
    try:
        # A key under a passphrase would be asked for on the terminal, which nobody watches.
        context.load_cert_chain(tls.cert_file, tls.key_file, password=lambda: b"")
    except (OSError, ValueError) as error:
        pair = f"{tls.cert_file} and {tls.key_file}"
        raise ConfigError(f"{pair}: expected a certificate and its key in PEM, found {_reason(error)}") from error
    if tls.client_ca_file is not None:
        try:
            context.load_verify_locations(cafile=tls.client_ca_file)
        except (OSError, ValueError) as error:
            expected = "certificates of authorities in PEM"
            raise ConfigError(f"{tls.client_ca_file}: expected {expected}, found {_reason(error)}") from error
        # As in Go, any certificate in the file is trusted as it stands, also one that is not its own issuer.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_mode = _VERIFYING[tls.client_auth]
    return context


def lets_in(tls: TlsConfig, connection: ssl.SSLObject) -> bool:
    """Tell whether a client whose certificate was verified is one of those that may connect."""
    if not tls.client_allowed_sans:
        return True
    # As pairs such as ("DNS", "prometheus.example"), whatever the types of other fields.
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
