"""TLS and SASL settings of connections. Secrets are read from their files for every connection."""

import ssl
from functools import partial
from pathlib import Path
from typing import Any

from monitor.sources.kafka.consumer import FailureKind, KafkaFailure
from monitor.sources.kafka.kafka_options import KafkaOptions, Mechanism, SaslOptions, TlsOptions

_LONGEST_SECRET = 64 << 10


def security(options: KafkaOptions) -> dict[str, Any]:
    """Return the client library's settings for TLS and SASL. Raises KafkaFailure for an unusable file."""
    settings: dict[str, Any] = {"security_protocol": _PROTOCOLS[options.sasl is not None, options.tls is not None]}
    if options.tls is not None:
        settings["ssl_context"] = tls_context(options.tls)
    if options.sasl is not None:
        settings |= _sasl(options.sasl)
    return settings


_PROTOCOLS = {
    (False, False): "PLAINTEXT",
    (False, True): "SSL",
    (True, False): "SASL_PLAINTEXT",
    (True, True): "SASL_SSL",
}
"""By whether SASL and TLS are configured."""


def tls_context(tls: TlsOptions) -> ssl.SSLContext:
    """Return the TLS context. Raises KafkaFailure for an unusable file."""
    try:
        context = ssl.create_default_context(cafile=None if tls.ca is None else str(tls.ca))
    except (OSError, ssl.SSLError) as error:
        raise KafkaFailure(FailureKind.TLS, f"no certificates in tls.ca {str(tls.ca)!r} ({_why(error)})") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = tls.check_hostname
    if tls.cert is not None:
        password = (
            None if tls.password_file is None else _secret(tls.password_file, "tls.password_file", FailureKind.TLS)
        )
        try:
            # Without a password, OpenSSL would prompt for it on the terminal.
            context.load_cert_chain(tls.cert, tls.key, password=password or "")
        except (OSError, ssl.SSLError) as error:
            raise KafkaFailure(
                FailureKind.TLS,
                f"no certificate with its key in tls.cert {str(tls.cert)!r} and tls.key ({_why(error)})",
            ) from error
    return context


def _sasl(sasl: SaslOptions) -> dict[str, Any]:
    if sasl.mechanism is Mechanism.OAUTHBEARER:
        # Imported here: configurations are validated without the client library, which is slow to import.
        from monitor.sources.kafka.internals import TokenFile  # noqa: PLC0415

        assert sasl.token_file is not None  # noqa: S101 - validated by SaslOptions
        provider = TokenFile(partial(_secret, sasl.token_file, "sasl.token_file", FailureKind.AUTHENTICATION))
        provider.token()  # report a missing file now
        return {"sasl_mechanism": str(sasl.mechanism), "sasl_oauth_token_provider": provider}
    assert sasl.password_file is not None  # noqa: S101 - validated by SaslOptions
    return {
        "sasl_mechanism": str(sasl.mechanism),
        "sasl_plain_username": sasl.user,
        "sasl_plain_password": _secret(sasl.password_file, "sasl.password_file", FailureKind.AUTHENTICATION),
    }


def _secret(path: Path, where: str, kind: FailureKind) -> str:
    try:
        with path.open("rb") as file:
            secret = file.read(_LONGEST_SECRET).decode().strip("\r\n")
    except OSError as error:
        raise KafkaFailure(kind, f"{where} {str(path)!r} that cannot be read ({_why(error)})") from error
    except UnicodeDecodeError:
        # Not chained: the exception would quote the file.
        raise KafkaFailure(kind, f"{where} {str(path)!r} that is not UTF-8") from None
    if not secret:
        raise KafkaFailure(kind, f"{where} {str(path)!r} that is empty")
    return secret


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").lower().replace("_", " ")
    return (getattr(error, "strerror", None) or type(error).__name__).lower()
