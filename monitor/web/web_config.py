"""The file of `--web.config.file`: TLS, client certificates, passwords and headers, in the format of exporter-toolkit.

Unsupported settings are errors, never ignored: a setting that seems to protect but does not would be worse than none.
Every accepted file also passes `promtool check web-config`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType

from monitor.settings.kinds import (
    HIDDEN,
    FilePath,
    Flag,
    ListOf,
    MapOf,
    OneOf,
    SettingKind,
    Text,
    invalid,
)
from monitor.settings.section import Section
from monitor.settings.setting_files import open_document
from monitor.settings.yaml_text import Node, Scalar


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


@dataclass(frozen=True)
class _Hash(SettingKind[str]):
    """A bcrypt hash."""

    type_name = "bcrypt hash"
    placeholder = ""
    least, most = 4, 16
    """Costs. Each step doubles the time; 16 takes seconds."""

    @property
    def expected(self) -> str:
        """The expected value."""
        return f"a bcrypt hash of a cost from {self.least} to {self.most}"

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
        server.report("http2", "false: cpcmon speaks HTTP/1.1 only", "true")
    named = server.section("headers")
    headers = {name: named.get(name, kind, None) for name, kind in _HEADERS.items()}
    users = root.get("basic_auth_users", MapOf(_Hash(), Text(), "names with a bcrypt hash each"), {})
    if any(":" in name for name in users):
        root.report("basic_auth_users", "names without a colon, which ends the name in HTTP", "one with it")
    if root.has("basic_auth_users") and not users and root.clean:
        root.report("basic_auth_users", "one name or more", "none")
    root.forbid("rate_limit", _NO_RATE_LIMIT)
    document.finish()
    return WebConfig(tls, {name: value for name, value in headers.items() if value is not None}, users)


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
