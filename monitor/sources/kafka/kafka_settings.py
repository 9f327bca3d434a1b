"""Reads the settings of a source of type `kafka`: topics, group, TLS, SASL, instance id."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import TypeVar

from monitor.errors import UsageError
from monitor.settings import expanded
from monitor.settings.kinds import (
    Choice,
    Duration,
    FilePath,
    Flag,
    Integer,
    ListOf,
    OneOf,
    Secret,
    SecretPath,
    SettingKind,
    Text,
    invalid,
)
from monitor.settings.section import Section
from monitor.settings.setting_files import problem_of, read_line, secret_file
from monitor.settings.yaml_text import Node, Scalar
from monitor.sources.base import read_numbers, report_error
from monitor.sources.kafka.connection import tls_context
from monitor.sources.kafka.consumer import KafkaFailure
from monitor.sources.kafka.kafka_options import (
    BOUNDS,
    NAME,
    Assignor,
    Isolation,
    KafkaOptions,
    Mechanism,
    SaslOptions,
    Start,
    TlsOptions,
)

_Options = TypeVar("_Options", bound=KafkaOptions)

_UNPROTECTED = {Mechanism.PLAIN: "the password", Mechanism.OAUTHBEARER: "the token"}


def _read_tls(section: Section, folder: Path) -> TlsOptions | None:
    """Return the TLS options; None without TLS, or after a problem."""
    # Any setting of the group enables TLS.
    enabled = section.get("enabled", Flag(), section.given)
    ca = section.get("ca", FilePath(folder, "the path of a file with certificates"), None)
    cert = section.get("cert", FilePath(folder, "the path of a certificate"), None)
    key = section.get("key", SecretPath(folder, "the path of a file with a key"), None)
    password_file = secret_file(section, "password_file", folder, "a password")
    check_hostname = section.get("check_hostname", Flag(), True)
    if not enabled or not section.clean:
        return None
    try:
        tls = TlsOptions(ca, cert, key, password_file, check_hostname)
    except UsageError as error:
        report_error(section, error)
        return None
    return tls if _exist(section, tls) and _are_valid(section, tls) else None


def _read_sasl(section: Section, folder: Path) -> SaslOptions | None:
    """Return the SASL options; None without SASL, or after a problem."""
    mechanism = section.get("mechanism", Choice(Mechanism))
    # Not shown either: pages have more readers than the file.
    user = section.get("user", Secret("a user name", "text"), None)
    password_file = secret_file(section, "password_file", folder, "a password")
    token_file = secret_file(section, "token_file", folder, "a token")
    if not section.given or not section.clean:
        return None
    try:
        sasl = SaslOptions(mechanism, user or "", password_file, token_file)
    except UsageError as error:
        report_error(section, error)
        return None
    if password_file is not None:
        secret = read_line(section, "password_file", password_file, "a password")
    else:
        assert token_file is not None  # noqa: S101  SaslOptions requires one
        secret = read_line(section, "token_file", token_file, "a token")
    return None if secret is None else sasl


def _warn_about_secrets(section: Section, tls: TlsOptions | None, sasl: SaslOptions | None) -> None:
    """Warn about secrets that are sent unencrypted."""
    if tls is None and sasl is not None and sasl.mechanism in _UNPROTECTED:
        section.findings.remarks.append(
            f"{section.at('sasl')}: {sasl.mechanism} without tls sends {_UNPROTECTED[sasl.mechanism]} unencrypted"
        )


def _exist(section: Section, tls: TlsOptions) -> bool:
    """Report missing files; return whether all exist."""
    absent = False
    for key, what in (("ca", "certificates"), ("cert", "a certificate"), ("key", "a key")):
        path = getattr(tls, key)
        wrong = None if path is None else problem_of(path)
        if wrong is not None:
            absent = True
            section.report(key, f"a file with {what}", wrong)
    if tls.password_file is not None:
        absent |= read_line(section, "password_file", tls.password_file, "a password") is None
    return not absent


def _are_valid(section: Section, tls: TlsOptions) -> bool:
    """Report files that are not PEM; return whether all are valid."""
    # One by one, to report the right key.
    for key, part, expected in (
        ("ca", TlsOptions(tls.ca), "PEM certificates"),
        ("cert", replace(tls, ca=None), "a PEM certificate with its key and the password of the key"),
    ):
        try:
            tls_context(part)
        except KafkaFailure as trouble:
            section.report(key, expected, trouble.found)
            return False
    return True


def _instance_key(section: Section) -> str:
    """Return the key that sets the instance id."""
    return "instance_id_file" if section.has("instance_id_file") else "instance_id"


def _read_instance_id(section: Section, folder: Path) -> str | None:
    """Return the instance id; None without one, or after a problem.

    Replicas share one configuration and need an id each: Kubernetes can write the name of a pod into a file.
    """
    name = section.get("instance_id", Text("a name that is stable across restarts"), None)
    file = section.get("instance_id_file", FilePath(folder, "the path of a file with a name"), None)
    if file is None:
        return name
    if section.has("instance_id"):
        section.report("instance_id_file", "either instance_id or instance_id_file", "both")
        return None
    line = read_line(section, "instance_id_file", file, "a name")
    return None if line is None else line.strip()


_DURATIONS = {
    "session_timeout": "session_timeout_seconds",
    "stall_after": "stall_after_seconds",
    "commit_every": "commit_seconds",
}
_SIZES = {
    "fetch_max": "fetch_max_bytes",
    "partition_fetch": "partition_fetch_bytes",
    "max_message": "max_message_bytes",
}
_SINCE = Duration(1.0, 3660 * 86400.0)

_TOPIC = Text("the name of a topic, up to 249 letters, digits and . _ -", NAME)
_START = OneOf(
    (Start.LATEST, Start.EARLIEST),
    {
        "since": "write since: 24h in place of start",
        "beginning": "write earliest",
        "end": "write latest",
    },
)


@dataclass(frozen=True)
class _Broker(SettingKind[str]):
    """A broker as `host:port`."""

    type_name = "text"
    expected = "host:port such as kafka:9092"
    placeholder = "kafka:9092"

    def read(self, node: Node) -> str:
        """Return the address. The part before an @ may be a password and is not shown."""
        text = node.text if isinstance(node, Scalar) else ""
        if "@" in text:
            raise invalid(node, self.expected, found="a value with an @, not shown")
        if "://" in text:
            raise invalid(node, self.expected, "write it without a scheme, and use tls and sasl")
        if "," in text:
            raise invalid(node, self.expected, "write one broker per item")
        address = Text(self.expected, re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+):[0-9]{1,5}")).read(node)
        if not 0 < int(address.rpartition(":")[2]) < 1 << 16:
            raise invalid(node, self.expected)
        return address

    def show(self, value: str) -> str:
        """Return the address, quoted where needed."""
        return Text().show(value)


def _expanded_group(section: Section, written: str) -> str:
    """Return the name of a group with the values of its environment variables."""
    try:
        return expanded(written)
    except ValueError as error:
        section.report("group", "the name of a consumer group", f"{written[:80]!r}: {error}")
        return written


def read_kafka(options_class: type[_Options], section: Section, folder: Path) -> _Options | None:
    """Return the options of a Kafka source; None after a problem."""
    default = options_class(("kafka:9092",), "cpcmon", ("predictions",))
    brokers = section.get("brokers", ListOf(_Broker(), "a list of brokers such as [kafka:9092]", 1))
    written = section.get("group", Text("the name of a consumer group"))
    group = _expanded_group(section, written)
    topics = section.get("topics", ListOf(_TOPIC, "a list of topic names", 1), None)
    pattern = section.get("pattern", Text("a regular expression for topic names"), None)
    instance_id = _read_instance_id(section, folder)
    since = section.get("since", _SINCE, None)
    start = section.get("start", _START, Start.LATEST if since is None else None)
    if since is not None and section.has("start"):
        section.report("since", "either start or since", "both")
    isolation = section.get("isolation", Choice(Isolation), default.isolation)
    assignor = section.get("assignor", Choice(Assignor), default.assignor)
    client_rack = section.get("client_rack", Text("the rack of this process"), None)
    numbers = read_numbers(section, default, BOUNDS, _DURATIONS, _SIZES)
    poll_records = Integer(*map(int, BOUNDS["max_poll_records"]))
    max_poll_records = section.get("max_poll_records", poll_records, default.max_poll_records)
    letters = section.section("dead_letters", optional=True)
    dead_letter_topic = letters.get("topic", _TOPIC, None)
    dead_letter_payload = letters.get("payload", Flag(), False)
    tls = _read_tls(section.section("tls", optional=True), folder)
    sasl = _read_sasl(section.section("sasl", optional=True), folder)
    if not section.clean:
        return None
    try:
        options = options_class(
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
            max_poll_records=max_poll_records,
            own_group=group != written,
            **numbers,
        )
    except UsageError as error:
        where = "" if error.problem is None else error.problem.where
        if where.startswith("dead_letters."):
            report_error(letters, error, where.removeprefix("dead_letters."))
        else:
            report_error(section, error, _instance_key(section) if where == "instance_id" else where)
        return None
    _warn_about_secrets(section, tls, sasl)
    return options


def check_clusters(sources: Sequence[tuple[Section, KafkaOptions]]) -> None:
    """Report sources of one cluster that read the same topics, or each other's dead letters."""
    for (earlier, theirs), (later, ours) in combinations(sources, 2):
        # A common broker means the same cluster.
        if set(theirs.brokers) & set(ours.brokers):
            _check_topics(earlier, theirs, later, ours)


def _check_topics(earlier: Section, theirs: KafkaOptions, later: Section, ours: KafkaOptions) -> None:
    for topic in _shared(theirs, ours):
        found = f"{topic}, which the source of line {earlier.line('name')} reads"
        key = "topics" if ours.pattern is None else "pattern"
        later.report(key, "other topics, or every record would count twice", found)
    for section, options, others in ((earlier, theirs, ours), (later, ours, theirs)):
        if options.dead_letter_topic is not None and _reads(others, options.dead_letter_topic):
            expected = "a dead letter topic that no source reads"
            section.report("dead_letters", expected, f"{options.dead_letter_topic}, which another source reads")
    if ours.instance_id is not None and (ours.group, ours.instance_id) == (theirs.group, theirs.instance_id):
        expected = "an instance_id that is unique in the group, or Kafka fences one of the two"
        later.report(_instance_key(later), expected, f"the same as in line {earlier.line(_instance_key(earlier))}")


def _shared(theirs: KafkaOptions, ours: KafkaOptions) -> Iterator[str]:
    yield from (topic for topic in ours.topics if _reads(theirs, topic))
    if ours.pattern is not None:
        yield from (topic for topic in theirs.topics if _reads(ours, topic))
        if ours.pattern == theirs.pattern:
            yield repr(ours.pattern)


def _reads(options: KafkaOptions, topic: str) -> bool:
    return topic in options.topics or (options.pattern is not None and re.match(options.pattern, topic) is not None)
