"""The settings of a source of type `kafka`."""

from pathlib import Path

from monitor.configuration.directory_source import parted
from monitor.configuration.kinds import ListOf
from monitor.configuration.number_kinds import Duration, Integer, Size
from monitor.configuration.section import Section
from monitor.configuration.text_kinds import Choice, FilePath, Flag, OneOf, Text
from monitor.errors import UsageError
from monitor.sources.kafka_options import Assignor, Isolation, KafkaOptions, Mechanism, SaslOptions, Start, TlsOptions

_DAY = 86400.0
_BROKERS = ListOf(Text("a broker such as kafka:9092"), "a list of brokers such as [kafka:9092]", 1)

# The bounds are those of KafkaOptions, which a test compares: here they can be told in the units that people write.
DURATIONS = {
    "session_timeout": ("session_timeout_seconds", Duration(1.0, 1800.0)),
    "stall_after": ("stall_after_seconds", Duration(1.0, _DAY)),
    "commit_every": ("commit_seconds", Duration(0.1, 3600.0)),
}
SIZES = {
    "fetch_max": ("fetch_max_bytes", Size(1 << 10, 1 << 30)),
    "partition_fetch": ("partition_fetch_bytes", Size(1 << 10, 1 << 30)),
    "max_message": ("max_message_bytes", Size(64, 1 << 30)),
}
# As options call them, where files call them otherwise.
_KEYS = {
    **{name: key for table in (DURATIONS, SIZES) for key, (name, _) in table.items()},
    "since_seconds": "since",
    "dead_letter_topic": "dead_letters.topic",
    "dead_letter_payload": "dead_letters.payload",
}


def read_kafka(section: Section, folder: Path) -> KafkaOptions | None:
    """Return which topics are read, and how; None after a mistake."""
    default = KafkaOptions(("kafka:9092",), "cpcmon", ("predictions",))
    brokers = section.get("brokers", _BROKERS)
    group = section.get("group", Text("the name of a consumer group"))
    topics = section.get("topics", ListOf(Text("the name of a topic"), "a list of names of topics"), ())
    pattern = section.get("pattern", Text("a regular expression"), None)
    instance_id = section.get("instance_id", Text("a name that stays the same over restarts"), None)
    start = section.get("start", OneOf((Start.LATEST, Start.EARLIEST), {}), Start.LATEST)
    since = section.get("since", Duration(1.0, 3660 * _DAY), None)
    isolation = section.get("isolation", Choice(Isolation), default.isolation)
    assignor = section.get("assignor", Choice(Assignor), default.assignor)
    max_poll_records = section.get("max_poll_records", Integer(1, 1_000_000), default.max_poll_records)
    client_rack = section.get("client_rack", Text("where this process runs"), None)
    durations = {name: section.get(key, kind, getattr(default, name)) for key, (name, kind) in DURATIONS.items()}
    sizes = {name: section.get(key, kind, getattr(default, name)) for key, (name, kind) in SIZES.items()}
    letters = section.section("dead_letters")
    dead_letter_topic = letters.get("topic", Text("the name of a topic"), None)
    dead_letter_payload = letters.get("payload", Flag(), False)
    tls, sasl = _tls(section.section("tls"), folder), _sasl(section.section("sasl"), folder)
    if not section.clean:
        return None
    try:
        return KafkaOptions(
            brokers,
            group,
            topics,
            pattern,
            instance_id,
            Start(start) if since is None else Start.SINCE,
            since,
            isolation,
            assignor,
            max_poll_records=max_poll_records,
            client_rack=client_rack or "",
            dead_letter_topic=dead_letter_topic,
            dead_letter_payload=dead_letter_payload,
            tls=tls,
            sasl=sasl,
            **durations,
            **sizes,
        )
    except UsageError as error:
        where, expected, found = parted(str(error))
        section.tell(_KEYS.get(where, where), expected, found)
        return None


def _tls(section: Section, folder: Path) -> TlsOptions | None:
    enabled = section.get("enabled", Flag(), section.given)
    options = {
        "ca": section.get("ca", FilePath(folder, "the path of a certificate"), None),
        "cert": section.get("cert", FilePath(folder, "the path of a certificate"), None),
        "key": section.get("key", FilePath(folder, "the path of a key"), None),
        "password_file": section.get("password_file", FilePath(folder, "the path of a file with a password"), None),
    }
    check_hostname = section.get("check_hostname", Flag(), True)
    if not enabled or not section.clean:
        return None
    try:
        return TlsOptions(**options, check_hostname=check_hostname)
    except UsageError as error:
        _tell(section, error)
        return None


def _sasl(section: Section, folder: Path) -> SaslOptions | None:
    mechanism = section.get("mechanism", Choice(Mechanism), None)
    user = section.get("user", Text("the name of a user"), None)
    password_file = section.get("password_file", FilePath(folder, "the path of a file with a password"), None)
    token_file = section.get("token_file", FilePath(folder, "the path of a file with a token"), None)
    if not section.given or not section.clean:
        return None
    try:
        return SaslOptions(mechanism, user or "", password_file, token_file)  # type: ignore[arg-type]  # it is checked there
    except UsageError as error:
        _tell(section, error)
        return None


def _tell(section: Section, error: UsageError) -> None:
    where, expected, found = parted(str(error))
    section.tell(where.partition(".")[2], expected, found)
