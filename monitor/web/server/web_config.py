"""The file of `--web.config.file`: TLS, client certificates, passwords and headers, in the format of exporter-toolkit.

Unsupported settings are errors, never ignored: a setting that seems to protect but does not would be worse than none.
Every accepted file also passes `promtool check web-config`. `WebSettings` reloads the file and its certificates when they change.
"""

import ipaddress
import logging
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any

from monitor.errors import ConfigError, Problem
from monitor.settings.kinds import HIDDEN, FilePath, Flag, ListOf, MapOf, OneOf, SettingKind, Text, invalid
from monitor.settings.section import Section
from monitor.settings.setting_files import file_stamp, open_document, problem_of
from monitor.settings.yaml_text import Node, Scalar

log = logging.getLogger("cpcmon")


class ClientAuth(StrEnum):
    """Whether clients must present a certificate, in Go's terms."""

    NONE = "NoClientCert"
    IF_GIVEN = "VerifyClientCertIfGiven"
    REQUIRED = "RequireAndVerifyClientCert"


class TlsVersion(StrEnum):
    """A supported TLS version."""

    TLS12 = "TLS12"
    TLS13 = "TLS13"


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS settings."""

    cert_file: Path
    key_file: Path
    client_auth: ClientAuth = ClientAuth.NONE
    client_ca_file: Path | None = None
    client_allowed_sans: tuple[str, ...] = ()
    """Allowed subject alternative names; empty allows every verified certificate."""
    min_version: TlsVersion = TlsVersion.TLS12
    max_version: TlsVersion = TlsVersion.TLS13


@dataclass(frozen=True, slots=True)
class WebConfig:
    """The web configuration. Without a file: plain HTTP without passwords."""

    tls: TlsConfig | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    users: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    """Password hashes by user name; empty without authentication."""
    remarks: tuple[str, ...] = ()
    """Warnings about valid settings."""


_VALUE = Text("a header's value, in ASCII", re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?"))
_HEADERS: Mapping[str, SettingKind[str]] = {
    "Content-Security-Policy": _VALUE,
    "Strict-Transport-Security": _VALUE,
    "X-Content-Type-Options": OneOf(("nosniff",)),
    "X-Frame-Options": OneOf(("deny", "sameorigin")),
    "X-XSS-Protection": Text("a header's value, in ASCII and in quotes", _VALUE.form),
}
_UNVERIFIED = "cpcmon verifies every certificate it asks for: an unverified one proves nothing"
_CLIENT_AUTH = OneOf(
    tuple(str(one) for one in ClientAuth),
    dict.fromkeys(("RequestClientCert", "RequireAnyClientCert", "RequireClientCert"), _UNVERIFIED),
)
_BROKEN = "it is insecure and not supported"
_VERSION = OneOf(tuple(str(one) for one in TlsVersion), dict.fromkeys(("TLS10", "TLS11"), _BROKEN))
_INLINE = ": use the file setting, since inline keys are copied with the configuration"
_OWN_CHOICE = ": OpenSSL chooses, by the system's security policy"
_NO_RATE_LIMIT = ": cpcmon limits connections, times and password checks instead"


class _Hash(SettingKind[str]):
    """A bcrypt hash."""

    type_name = "bcrypt hash"
    placeholder = ""
    least, most = 4, 16
    """Costs. Each step doubles the time; 16 takes seconds."""
    expected = f"a bcrypt hash of a cost from {least} to {most}"

    def read(self, node: Node) -> str:
        """Return the hash. No message shows the value found, which may be the password itself."""
        # The last character of the salt encodes two bits; with any other character no password would match.
        form = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}")
        found = form.fullmatch(node.text) if isinstance(node, Scalar) else None
        if found is None:
            raise invalid(node, self.expected, found="something else, which is not shown")
        if not self.least <= int(found.group(1)) <= self.most:
            raise invalid(node, self.expected, found=f"a cost of {int(found.group(1))}")
        return found.group()

    def show(self, value: str) -> str:  # noqa: ARG002
        """Hide the hash, which allows offline guessing."""
        return HIDDEN


def read_web_config(path: Path) -> WebConfig:
    """Read a file; raises ConfigError with every mistake."""
    document = open_document(path)
    root = document.root
    tls = _tls(root.section("tls_server_config"), path.parent)
    server = root.section("http_server_config")
    if server.get("http2", Flag(), default=False):
        # No protection is lost: every client of HTTP/2 speaks HTTP/1.1 too.
        document.findings.remarks.append(
            f"{path}:{server.line('http2')}: {server.at('http2')}: cpcmon speaks HTTP/1.1 only"
        )
    named = server.section("headers")
    headers = {name: named.get(name, kind, None) for name, kind in _HEADERS.items()}
    users = root.get("basic_auth_users", MapOf(_Hash(), Text(), "names with a bcrypt hash each"), {})
    if any(":" in name for name in users):
        root.report("basic_auth_users", "names without a colon, which ends the name in HTTP", "one with it")
    if root.has("basic_auth_users") and not users and root.clean:
        root.report("basic_auth_users", "one name or more", "none")
    root.forbid("rate_limit", _NO_RATE_LIMIT)
    document.finish()
    given = {name: value for name, value in headers.items() if value is not None}
    return WebConfig(tls, given, users, tuple(document.findings.remarks))


def _tls(section: Section, folder: Path) -> TlsConfig | None:
    for name in ("cert", "key", "client_ca"):
        section.forbid(name, _INLINE)
    for name in ("cipher_suites", "curve_preferences", "prefer_server_cipher_suites"):
        section.forbid(name, _OWN_CHOICE)
    cert = section.get("cert_file", FilePath(folder, "a file, since TLS needs both cert_file and key_file"))
    key = section.get("key_file", FilePath(folder, "a file, since TLS needs both cert_file and key_file"))
    auth = ClientAuth(section.get("client_auth_type", _CLIENT_AUTH, str(ClientAuth.NONE)))
    authority = section.get("client_ca_file", FilePath(folder, "a file"), None)
    names = section.get("client_allowed_sans", ListOf(Text("a name"), "a list of names", fewest=1), ())
    least = TlsVersion(section.get("min_version", _VERSION, str(TlsVersion.TLS12)))
    most = TlsVersion(section.get("max_version", _VERSION, str(TlsVersion.TLS13)))
    if not section.given:
        return None
    if section.clean:
        _check_clients(section, auth, authority, names)
    if least > most:
        section.report("max_version", f"{least} or later, since that is the min_version", repr(str(most)))
    return TlsConfig(cert, key, auth, authority, names, least, most)


def _check_clients(section: Section, auth: ClientAuth, authority: Path | None, names: tuple[str, ...]) -> None:
    """Report client certificate settings that contradict each other and would protect less than they seem to."""
    found = repr(str(auth))
    if authority is None and auth is not ClientAuth.NONE:
        section.report("client_ca_file", f"a file, since client_auth_type is {auth}", "nothing")
    if authority is not None and auth is ClientAuth.NONE:
        expected = f"{ClientAuth.REQUIRED} or {ClientAuth.IF_GIVEN}, since there is a client_ca_file"
        section.report("client_auth_type", expected, found)
    if names and auth is not ClientAuth.REQUIRED:
        section.report("client_auth_type", f"{ClientAuth.REQUIRED}, since there are client_allowed_sans", found)


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
        self._stamps: tuple[object, ...] = ()
        self._in_force = ActiveWebConfig() if path is None else self._read(path)

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self._in_force.context is not None

    @property
    def remarks(self) -> tuple[str, ...]:
        """Warnings about the file in force."""
        return self._in_force.config.remarks

    def current(self) -> ActiveWebConfig:
        """Return the configuration in force, reloaded if the files changed."""
        if self._path is not None and tuple(map(file_stamp, self._files)) != self._stamps:
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
        self.log_remarks()

    def log_remarks(self) -> None:
        """Log the warnings about the file."""
        for remark in self.remarks:
            log.warning("%s", remark)

    def _read(self, path: Path) -> ActiveWebConfig:
        """Read the file and its certificates; raises ConfigError.

        Stamps are taken before reading, so that a change meanwhile triggers another reload.
        """
        self._files, self._stamps = (path,), (file_stamp(path),)
        _check_is_a_file(path)
        config = read_web_config(path)
        if config.tls is None:
            return ActiveWebConfig(config)
        named = (config.tls.cert_file, config.tls.key_file, config.tls.client_ca_file)
        certificates = tuple(file for file in named if file is not None)
        self._files, self._stamps = (path, *certificates), self._stamps + tuple(map(file_stamp, certificates))
        for file in certificates:
            _check_is_a_file(file)
        return ActiveWebConfig(config, context_of(config.tls))


def _check_is_a_file(path: Path) -> None:
    # Reading a pipe would block all clients.
    if (found := problem_of(path)) is not None:
        raise ConfigError(Problem(str(path), "a file", found.lower()))


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
