"""The settings of a source of type `kafka`: topics, group, TLS, SASL, instance id.

Replicas share one configuration, and need a name each. Kubernetes can write the name of a pod into a file.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from monitor.config.directory_settings import parted
from monitor.errors import UsageError
from monitor.settings.kinds import (
    Choice,
    Fault,
    FilePath,
    Flag,
    ListOf,
    OneOf,
    Secret,
    SecretPath,
    SettingKind,
    Text,
    Unfit,
    unfit,
)
from monitor.settings.quantities import Duration, Integer, SizeSetting
from monitor.settings.section import Section
from monitor.settings.setting_files import open_file, problem_of, secret_file, secret_in
from monitor.settings.yaml_text import Node, Scalar
from monitor.sources.kafka.consumer import KafkaFailure
from monitor.sources.kafka.kafka_options import (
    Assignor,
    Isolation,
    KafkaOptions,
    Mechanism,
    SaslOptions,
    Start,
    TlsOptions,
)
from monitor.sources.kafka.security import tls_context

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
        except KafkaFailure as trouble:
            section.tell(key, expected, trouble.found)
            return False
    return True


def _tell(section: Section, error: UsageError) -> None:
    where, expected, found = parted(str(error))
    section.tell(where.partition(".")[2], expected, found)


_EXPECTED = "a file that holds a name in one line"
_MOST_BYTES = 1024


def instance_key(section: Section) -> str:
    """Return the setting that gives the name."""
    return "instance_id_file" if section.has("instance_id_file") else "instance_id"


def read_instance_id(section: Section, folder: Path) -> str | None:
    """Return the name; None without one, and after a mistake, which is noted."""
    name = section.get("instance_id", Text("a name that stays the same over restarts"), None)
    file = section.get("instance_id_file", FilePath(folder, "the path of a file that holds a name"), None)
    if file is None:
        return name
    if section.has("instance_id"):
        section.tell("instance_id_file", "either instance_id or instance_id_file", "both")
        return None
    return _line_in(section, file)


def _line_in(section: Section, file: Path) -> str | None:
    try:
        with open_file(file) as opened:
            text = opened.read(_MOST_BYTES).decode("utf-8").strip()
    except UnicodeDecodeError:
        section.tell("instance_id_file", _EXPECTED, "one that is not UTF-8")
    except (OSError, ValueError) as error:
        section.tell("instance_id_file", _EXPECTED, getattr(error, "strerror", None) or "a path that cannot be read")
    else:
        if text and text.isprintable():
            return text
        section.tell("instance_id_file", _EXPECTED, "something else" if text else "nothing")
    return None


_DAY = 86400.0

# The bounds are those of KafkaOptions, which a test compares: here they can be told in the units that people write.
DURATIONS = {
    "session_timeout": ("session_timeout_seconds", Duration(1.0, 1800.0)),
    "stall_after": ("stall_after_seconds", Duration(1.0, _DAY)),
    "commit_every": ("commit_seconds", Duration(0.1, 3600.0)),
}
SIZES = {
    "fetch_max": ("fetch_max_bytes", SizeSetting(1 << 10, 1 << 30)),
    "partition_fetch": ("partition_fetch_bytes", SizeSetting(1 << 10, 1 << 30)),
    "max_message": ("max_message_bytes", SizeSetting(64, 1 << 30)),
}
INTEGERS = {"max_poll_records": ("max_poll_records", Integer(1, 1_000_000))}
SINCE = Duration(1.0, 3660 * _DAY)

_TOPIC = Text(
    "the name of a topic, up to 249 letters, digits and . _ -", re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
)
_START = OneOf(
    (Start.LATEST, Start.EARLIEST),
    {
        "since": "write since: 24h in place of start",
        "beginning": "write earliest",
        "end": "write latest",
    },
)
_LETTERS = {"dead_letter_topic": "topic", "dead_letter_payload": "payload"}
"""As options call them, and what they are called in `dead_letters`."""


@dataclass(frozen=True)
class _Broker(SettingKind[str]):
    """A broker as `host:port`."""

    word = "text"
    expected = "host:port such as kafka:9092"
    stand_in = "kafka:9092"

    def read(self, node: Node) -> str:
        """Return the address; what stands before an @ may be a password, and is not repeated."""
        text = node.text if isinstance(node, Scalar) else ""
        if "@" in text:
            raise Unfit(Fault(self.expected, "something with an @, which is not shown", node.line))
        if "://" in text:
            raise unfit(node, self.expected, "write it without what stands before ://, and see tls and sasl")
        if "," in text:
            raise unfit(node, self.expected, "write each broker as an item of its own")
        return Text(self.expected, re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+):[0-9]{1,5}")).read(node)

    def show(self, value: str) -> str:
        """Return the address in quotes, since some begin with a bracket."""
        return Text().show(value)


def read_kafka(section: Section, folder: Path) -> KafkaOptions | None:
    """Return which topics are read, and how; None after a mistake."""
    default = KafkaOptions(("kafka:9092",), "cpcmon", ("predictions",))
    brokers = section.get("brokers", ListOf(_Broker(), "a list of brokers such as [kafka:9092]", 1))
    group = section.get("group", Text("the name of a consumer group"))
    topics = section.get("topics", ListOf(_TOPIC, "a list of names of topics", 1), None)
    pattern = section.get("pattern", Text("a regular expression for names of topics"), None)
    instance_id = read_instance_id(section, folder)
    since = section.get("since", SINCE, None)
    start = section.get("start", _START, Start.LATEST if since is None else None)
    if since is not None and section.has("start"):
        section.tell("since", "either start or since", "both")
    isolation = section.get("isolation", Choice(Isolation), default.isolation)
    assignor = section.get("assignor", Choice(Assignor), default.assignor)
    client_rack = section.get("client_rack", Text("where this process runs"), None)
    durations = {name: section.get(key, kind, getattr(default, name)) for key, (name, kind) in DURATIONS.items()}
    sizes = {name: section.get(key, kind, getattr(default, name)) for key, (name, kind) in SIZES.items()}
    integers = {name: section.get(key, kind, getattr(default, name)) for key, (name, kind) in INTEGERS.items()}
    letters = section.section("dead_letters", optional=True)
    dead_letter_topic = letters.get("topic", _TOPIC, None)
    dead_letter_payload = letters.get("payload", Flag(), False)
    tls = read_tls(section.section("tls", optional=True), folder)
    sasl = read_sasl(section.section("sasl", optional=True), folder)
    if not section.clean:
        return None
    try:
        options = KafkaOptions(
            brokers=brokers,
            group=group,
            topics=topics or (),
            pattern=pattern,
            instance_id=instance_id,
            start=Start.SINCE if start is None or since is not None else Start(start),
            since_seconds=since,
            isolation=isolation,
            assignor=assignor,
            client_rack=client_rack or "",
            dead_letter_topic=dead_letter_topic,
            dead_letter_payload=dead_letter_payload,
            tls=tls,
            sasl=sasl,
            **durations,
            **sizes,
            **integers,
        )
    except UsageError as error:
        where, expected, found = parted(str(error))
        if where in _LETTERS:
            letters.tell(_LETTERS[where], expected.replace("dead_letter_topic", "topic"), found)
        else:
            section.tell(instance_key(section) if where == "instance_id" else where, expected, found)
        return None
    remark_on_secrets(section, tls, sasl)
    return options
