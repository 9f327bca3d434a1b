"""TLS as the web configuration wants it."""

import ipaddress
import ssl
from typing import Any

from monitor.errors import ConfigError
from monitor.web.web_config import ClientAuth, TlsConfig, TlsVersion

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
