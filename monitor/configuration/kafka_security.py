"""How a Kafka source is let in: TLS and SASL. The files that are named are opened, so that a missing one is told at once."""

from dataclasses import replace
from pathlib import Path

from monitor.configuration.directory_source import parted
from monitor.configuration.plain_file import problem_of
from monitor.configuration.secret_file import secret_file, secret_in
from monitor.configuration.section import Section
from monitor.configuration.text_kinds import Choice, FilePath, Flag, Secret, SecretPath
from monitor.errors import UsageError
from monitor.sources.kafka_options import Mechanism, SaslOptions, TlsOptions
from monitor.sources.kafka_security import tls_context
from monitor.sources.kafka_trouble import Trouble

_UNPROTECTED = {Mechanism.PLAIN: "the password", Mechanism.OAUTHBEARER: "the token"}


def read_tls(section: Section, folder: Path) -> TlsOptions | None:
    """Return how connections are encrypted; None when they are not, or after a mistake."""
    # Whoever writes something about TLS wants it.
    enabled = section.get("enabled", Flag(), section.given)
    ca = section.get("ca", FilePath(folder, "the path of a file of certificates"), None)
    cert = section.get("cert", FilePath(folder, "the path of a certificate"), None)
    key = section.get("key", SecretPath(folder, "the path of a file that holds a key"), None)
    password_file = secret_file(section, "password_file", folder, "a password")
    check_hostname = section.get("check_hostname", Flag(), True)
    if not enabled or not section.clean:
        return None
    try:
        tls = TlsOptions(ca, cert, key, password_file, check_hostname)
    except UsageError as error:
        _tell(section, error)
        return None
    return tls if _are_there(section, tls) and _fit(section, tls) else None


def read_sasl(section: Section, folder: Path) -> SaslOptions | None:
    """Return who we are; None when nobody asks, or after a mistake."""
    mechanism = section.get("mechanism", Choice(Mechanism))
    # Half of what it takes to log in, and pages are read by more people than the file.
    user = section.get("user", Secret("the name of a user", "text"), None)
    password_file = secret_file(section, "password_file", folder, "a password")
    token_file = secret_file(section, "token_file", folder, "a token")
    if not section.given or not section.clean:
        return None
    try:
        sasl = SaslOptions(mechanism, user or "", password_file, token_file)
    except UsageError as error:
        _tell(section, error)
        return None
    if password_file is not None:
        secret = secret_in(section, "password_file", password_file, "a password")
    else:
        assert token_file is not None  # noqa: S101  SaslOptions refuses it
        secret = secret_in(section, "token_file", token_file, "a token")
    return None if secret is None else sasl


def remark_on_secrets(section: Section, tls: TlsOptions | None, sasl: SaslOptions | None) -> None:
    """Remark on secrets that everybody on the way can read."""
    if tls is None and sasl is not None and sasl.mechanism in _UNPROTECTED:
        section.findings.remarks.append(
            f"{section.at('sasl')}: {sasl.mechanism} without tls sends {_UNPROTECTED[sasl.mechanism]} as it is"
        )


def _are_there(section: Section, tls: TlsOptions) -> bool:
    """Note files that are not there, and tell whether all are."""
    absent = False
    for key, what in (("ca", "certificates"), ("cert", "a certificate"), ("key", "a key")):
        path = getattr(tls, key)
        wrong = None if path is None else problem_of(path)
        if wrong is not None:
            absent = True
            section.tell(key, f"a file that holds {what}", wrong)
    if tls.password_file is not None:
        absent |= secret_in(section, "password_file", tls.password_file, "a password") is None
    return not absent


def _fit(section: Section, tls: TlsOptions) -> bool:
    """Note files that cannot be used, and tell whether all can."""
    # One after the other, so that it is known which of them is wrong.
    for key, part, expected in (
        ("ca", TlsOptions(tls.ca), "certificates as PEM"),
        ("cert", replace(tls, ca=None), "a certificate as PEM, with its key and the key's password"),
    ):
        try:
            tls_context(part)
        except Trouble as trouble:
            section.tell(key, expected, trouble.found)
            return False
    return True


def _tell(section: Section, error: UsageError) -> None:
    where, expected, found = parted(str(error))
    section.tell(where.partition(".")[2], expected, found)
