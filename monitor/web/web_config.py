"""The file of `--web.config.file`: TLS, client certificates, passwords and headers, in the format of exporter-toolkit.

What cpcmon does not do is refused with a reason, never ignored: a setting that looks as if it protected would be worse
than none. What is accepted here, `promtool check web-config` accepts too.
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
    InvalidValue,
    ListOf,
    MapOf,
    OneOf,
    SettingKind,
    Text,
    ValueProblem,
)
from monitor.settings.section import Section
from monitor.settings.setting_files import open_document
from monitor.settings.yaml_text import Node, Scalar


class ClientAuth(StrEnum):
    """Whether clients must show a certificate, in the words of Go."""

    NONE = "NoClientCert"
    IF_GIVEN = "VerifyClientCertIfGiven"
    REQUIRED = "RequireAndVerifyClientCert"


class TlsVersion(StrEnum):
    """A version of TLS. Older ones are broken and not served."""

    TLS12 = "TLS12"
    TLS13 = "TLS13"


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """How connections are encrypted, and who may connect."""

    cert_file: Path
    key_file: Path
    client_auth: ClientAuth = ClientAuth.NONE
    client_ca_file: Path | None = None
    client_allowed_sans: tuple[str, ...] = ()
    """Who may connect, by subject alternative names; empty for everybody whose certificate fits."""
    min_version: TlsVersion = TlsVersion.TLS12
    max_version: TlsVersion = TlsVersion.TLS13


@dataclass(frozen=True, slots=True)
class WebConfig:
    """What the file says. Without a file: plain HTTP for everybody who can connect."""

    tls: TlsConfig | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    users: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    """Hashes of passwords by name; empty when no password is asked for."""


_VALUE = Text("a header's value, in ASCII", re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?"))
_HEADERS: Mapping[str, SettingKind[str]] = {
    "Content-Security-Policy": _VALUE,
    "Strict-Transport-Security": _VALUE,
    "X-Content-Type-Options": OneOf(("nosniff",)),
    "X-Frame-Options": OneOf(("deny", "sameorigin")),
    "X-XSS-Protection": Text("a header's value, in ASCII and in quotes", _VALUE.form),
}
_UNVERIFIED = "cpcmon asks for no certificate that it does not verify: anybody can make one"
_CLIENT_AUTH = OneOf(
    tuple(str(one) for one in ClientAuth),
    dict.fromkeys(("RequestClientCert", "RequireAnyClientCert", "RequireClientCert"), _UNVERIFIED),
)
_BROKEN = "it is broken, and no longer served"
_VERSION = OneOf(tuple(str(one) for one in TlsVersion), dict.fromkeys(("TLS10", "TLS11"), _BROKEN))
_INLINE = ": name a file, since secrets in a file of settings are copied with it"
_OWN_CHOICE = ": OpenSSL chooses, by the security policy of the system"
_NO_RATE_LIMIT = ": connections, time and password checks are bounded instead"


@dataclass(frozen=True)
class _Hash(SettingKind[str]):
    """A password as bcrypt hashed it."""

    type_name = "bcrypt hash"
    placeholder = ""
    least, most = 4, 16
    """Costs. Each more doubles the time: 16 takes seconds."""

    @property
    def expected(self) -> str:
        """What was asked for."""
        return f"a bcrypt hash of a cost from {self.least} to {self.most}"

    def read(self, node: Node) -> str:
        """Return the hash; no message shows what stands there, which may be the password itself."""
        # The salt's last character holds two bits. With another one no password is ever right, and nobody is told why.
        form = re.compile(r"\$2[aby]\$([0-9]{2})\$[./A-Za-z0-9]{21}[.Oeu][./A-Za-z0-9]{31}")
        found = form.fullmatch(node.text) if isinstance(node, Scalar) else None
        if found is None:
            raise InvalidValue(ValueProblem(self.expected, "something else, which is not shown", node.line))
        if not self.least <= int(found.group(1)) <= self.most:
            raise InvalidValue(ValueProblem(self.expected, f"a cost of {int(found.group(1))}", node.line))
        return found.group()

    def show(self, value: str) -> str:  # noqa: ARG002  whatever it is
        """Return what stands in its place: a hash can be tried against many passwords."""
        return HIDDEN


def read_web_config(path: Path) -> WebConfig:
    """Read a file; raises ConfigError that tells every mistake."""
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
    """Refuse settings for client certificates that do not fit together, and so would protect less than they seem to."""
    found = repr(str(auth))
    if authority is None and auth is not ClientAuth.NONE:
        section.report("client_ca_file", f"a file, since client_auth_type is {auth}", "nothing")
    if authority is not None and auth is ClientAuth.NONE:
        expected = f"{ClientAuth.REQUIRED} or {ClientAuth.IF_GIVEN}, since there is a client_ca_file"
        section.report("client_auth_type", expected, found)
    if names and auth is not ClientAuth.REQUIRED:
        section.report("client_auth_type", f"{ClientAuth.REQUIRED}, since there are client_allowed_sans", found)
