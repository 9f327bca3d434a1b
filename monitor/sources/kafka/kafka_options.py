"""The settings of a Kafka source, and the list of events it counts."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from monitor.errors import UsageError

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_BROKER = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]@]+):([0-9]{1,5})")


class KafkaEvent(StrEnum):
    """Event names. Public: they become label values."""

    MESSAGES_READ = "messages_read"
    """Messages read, including rejected ones and tombstones."""
    BYTES_READ = "bytes_read"
    """Bytes of their values."""
    TOMBSTONES = "tombstones"
    """Messages without a value: deletions of a key, not records."""
    MESSAGES_REPEATED = "messages_repeated"
    """Messages fetched again although already read; skipped."""
    REBALANCES = "rebalances"
    """Rebalances of the group, as seen by this process."""
    REJOINS = "rejoins"
    """Times this process rejoined the group because partitions were assigned to no member."""
    PARTITIONS_ASSIGNED = "partitions_assigned"
    PARTITIONS_REVOKED = "partitions_revoked"
    PARTITIONS_LOST = "partitions_lost"
    """Partitions that were reassigned because this process had been silent for too long."""
    PARTITIONS_RESUMED = "partitions_resumed"
    """Partitions that continued at the checkpoint of this process, or at the group's offset."""
    PARTITIONS_REWOUND = "partitions_rewound"
    """Partitions whose windows were rebuilt from the log, because no newer state was stored here."""
    PARTITIONS_STARTED = "partitions_started"
    """Partitions read for the first time by this group."""
    PARTITIONS_TRUNCATED = "partitions_truncated"
    """Partitions whose log ended before the checkpoint; read again from the start."""
    TOPICS_RECREATED = "topics_recreated"
    """Partitions of a topic that was deleted and created again; read from the start."""
    RECORDS_LOST = "records_lost"
    """Offsets deleted by retention before they were read: an upper bound of the records."""
    REWINDS_CUT_SHORT = "rewinds_cut_short"
    """Windows rebuilt only in part, because retention had deleted the rest."""
    BATCHES_UNREADABLE = "batches_unreadable"
    """Damaged batches that were skipped."""
    OFFSETS_UNREADABLE = "offsets_unreadable"
    """Offsets skipped with them: an upper bound of the records."""
    OFFSET_COMMITS = "offset_commits"
    OFFSET_COMMIT_ERRORS = "offset_commit_errors"
    """Failed offset commits; harmless, the next one covers them."""
    CONNECTIONS = "connections"
    """Connections to the cluster."""
    STALLS = "stalls"
    """Times a partition with unread messages did not advance, and the connection was opened again."""
    OVER_ROOM = "over_room"
    """Times this process was assigned more partitions than fit in limits.window_bytes."""
    POSITIONS_DAMAGED = "positions_damaged"
    """Unreadable checkpoints; the stored data of their partitions was deleted."""
    DEAD_LETTERS = "dead_letters"
    """Pointers to rejected records, queued for the dead-letter topic."""
    DEAD_LETTERS_SENT = "dead_letters_sent"
    DEAD_LETTERS_DROPPED = "dead_letters_dropped"
    """Those that were not sent: the queue was full, or the topic not available."""
    DECODER_ERRORS = "decoder_errors"
    """Messages on which the decoder raised an unexpected exception; skipped."""
    ERRORS_UNREACHABLE = "errors_unreachable"
    """No broker answered."""
    ERRORS_TLS = "errors_tls"
    ERRORS_AUTHENTICATION = "errors_authentication"
    ERRORS_AUTHORIZATION = "errors_authorization"
    ERRORS_FENCED = "errors_fenced"
    """Another process uses the same instance_id."""
    ERRORS_CONFIGURATION = "errors_configuration"
    ERRORS_UNKNOWN_TOPIC = "errors_unknown_topic"
    ERRORS_CODEC = "errors_codec"
    """The compression of the messages is not supported."""
    ERRORS_OTHER = "errors_other"
    """Any other error of the cluster or the client library, mostly transient."""


class Start(StrEnum):
    """Where to start in a partition without a checkpoint and without a committed offset."""

    LATEST = "latest"
    EARLIEST = "earliest"
    SINCE = "since"
    """With the records of the last `since_seconds`."""


class Isolation(StrEnum):
    """Which transactional records are read."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class Assignor(StrEnum):
    """How partitions are assigned. All members of the group must use the same."""

    COOPERATIVE = "cooperative"
    """Only reassigned partitions pause."""
    RANGE = "range"


class Mechanism(StrEnum):
    """The SASL mechanism."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """TLS settings. Files are read for every connection, so that certificates can be renewed."""

    ca: Path | None = None
    """CA certificates; default: the system's."""
    cert: Path | None = None
    key: Path | None = None
    """The client certificate and its key, if brokers require one."""
    password_file: Path | None = None
    """A file with the password of the key."""
    check_hostname: bool = True

    def __post_init__(self) -> None:
        """Validate the values."""
        if self.key is not None and self.cert is None:
            raise UsageError("tls.cert: expected a certificate beside the key, found none")
        if self.password_file is not None and self.cert is None:
            raise UsageError("tls.cert: expected a certificate whose key has the password, found none")


@dataclass(frozen=True, slots=True)
class SaslOptions:
    """SASL settings. The secret is read for every connection."""

    mechanism: Mechanism
    user: str = ""
    password_file: Path | None = None
    token_file: Path | None = None

    def __post_init__(self) -> None:
        """Validate the values."""
        if not isinstance(self.mechanism, Mechanism):
            raise UsageError(f"sasl.mechanism: expected {', '.join(Mechanism)}, found {self.mechanism!r}")
        if self.mechanism is Mechanism.OAUTHBEARER:
            if self.token_file is None:
                raise UsageError("sasl.token_file: expected a file that holds the token of OAUTHBEARER, found none")
            if self.user or self.password_file is not None:
                raise UsageError(
                    "sasl.user: expected only a token_file with OAUTHBEARER, found a user or password_file"
                )
            return
        if not self.user:
            raise UsageError(f"sasl.user: expected the name of a user for {self.mechanism}, found none")
        if self.password_file is None:
            raise UsageError("sasl.password_file: expected a file that holds the password, found none")
        if self.token_file is not None:
            raise UsageError(f"sasl.token_file: expected OAUTHBEARER beside it, found {self.mechanism}")


BOUNDS: Mapping[str, tuple[float, float]] = {
    "session_timeout_seconds": (1.0, 1800.0),
    "max_poll_records": (1, 1_000_000),
    "fetch_max_bytes": (1024, 1 << 30),
    "partition_fetch_bytes": (1024, 1 << 30),
    "max_message_bytes": (64, 1 << 30),
    "stall_after_seconds": (1.0, 86400.0),
    "commit_seconds": (0.1, 3600.0),
}
"""The least and the greatest value of each number in the options."""


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """The settings of a Kafka source."""

    brokers: tuple[str, ...]
    """Bootstrap brokers, each as `host:port`."""
    group: str
    """The consumer group. Processes of one group share the partitions."""
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """A regular expression for topic names, instead of a list."""
    instance_id: str | None = None
    """Static membership: a process that returns within the session timeout keeps its partitions."""
    start: Start = Start.LATEST
    since_seconds: float | None = None
    isolation: Isolation = Isolation.READ_COMMITTED
    assignor: Assignor = Assignor.COOPERATIVE
    session_timeout_seconds: float = 45.0
    """How long a process may be silent before its partitions are reassigned."""
    max_poll_records: int = 10_000
    """Messages per poll."""
    fetch_max_bytes: int = 50 << 20
    """Bytes per fetch response."""
    partition_fetch_bytes: int = 4 << 20
    """Bytes per partition in a fetch response."""
    max_message_bytes: int = 8 << 20
    """Larger messages are rejected."""
    tls: TlsOptions | None = None
    sasl: SaslOptions | None = None
    client_rack: str = ""
    """The rack of this process, to read from the nearest replica."""
    stall_after_seconds: float = 120.0
    """How long a partition with unread messages may stand still before the connection is opened again."""
    commit_seconds: float = 10.0
    """How often offsets are committed to the group, for lag tools and for replicas without our disk."""
    dead_letter_topic: str | None = None
    """Topic for pointers to rejected records."""
    dead_letter_payload: bool = False
    """Whether the rejected messages themselves are sent there too."""
    api_version: tuple[int, ...] | None = None
    """The version of brokers that cannot report it; for tests."""

    def __post_init__(self) -> None:
        """Validate the values."""
        self._check_numbers()
        self._check_choices()
        self._check_topics()
        self._check_membership()

    @property
    def address(self) -> str:
        """The brokers as named in messages."""
        return ",".join(self.brokers)

    def _check_numbers(self) -> None:
        for name, (least, most) in BOUNDS.items():
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
                raise UsageError(f"{name}: expected a number from {least:g} to {most:g}, found {value!r}")

    def _check_choices(self) -> None:
        kinds: Iterable[tuple[str, type[StrEnum]]] = (
            ("start", Start),
            ("isolation", Isolation),
            ("assignor", Assignor),
        )
        for name, kind in kinds:
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise UsageError(f"{name}: expected {', '.join(kind)}, found {value!r}")
        if (self.start is Start.SINCE) != (self.since_seconds is not None):
            found = "start: since without it" if self.since_seconds is None else f"start: {self.start} beside it"
            raise UsageError(f"since_seconds: expected a duration exactly when start is since, found {found}")
        if self.since_seconds is not None and not 0.0 < self.since_seconds <= 3660 * 86400.0:
            raise UsageError(
                f"since_seconds: expected a duration above 0 and below ten years, found {self.since_seconds!r}"
            )

    def _check_topics(self) -> None:
        if bool(self.topics) == (self.pattern is not None):
            found = "neither" if self.pattern is None else "both"
            raise UsageError(f"topics: expected a list of topics or a pattern, found {found}")
        for topic in (*self.topics, *([] if self.dead_letter_topic is None else [self.dead_letter_topic])):
            if not _TOPIC.fullmatch(topic) or topic in {".", ".."}:
                raise UsageError(
                    f"topics: expected names of up to 249 letters, digits, dots, _ and -, found {topic[:260]!r}"
                )
        if len(set(self.topics)) < len(self.topics):
            raise UsageError("topics: expected each topic once, found one twice")
        if self.pattern is not None:
            try:
                expression = re.compile(self.pattern)
            except re.error as error:
                raise UsageError(f"pattern: expected a regular expression, found {self.pattern!r} ({error})") from error
            if self.dead_letter_topic is not None and expression.match(self.dead_letter_topic):
                raise UsageError(
                    "dead_letter_topic: expected a topic that is not read itself, found one that the pattern matches"
                )
        if self.dead_letter_topic is not None and self.dead_letter_topic in self.topics:
            raise UsageError("dead_letter_topic: expected a topic that is not read itself, found one of topics")
        if self.dead_letter_payload and self.dead_letter_topic is None:
            raise UsageError("dead_letter_payload: expected a dead_letter_topic beside it, found none")

    def _check_membership(self) -> None:
        if not self.brokers:
            raise UsageError("brokers: expected at least one broker such as kafka:9092, found none")
        for broker in self.brokers:
            found = _BROKER.fullmatch(broker)
            # The part before an @ may be a password, so it is not repeated.
            if found is None or not 0 < int(found.group(2)) < 1 << 16:
                shown = "something with an @" if "@" in broker else repr(broker)
                raise UsageError(f"brokers: expected host:port such as kafka:9092, found {shown}")
        if not self.group or len(self.group) > 249:
            raise UsageError(f"group: expected a name of 1 to 249 characters, found {self.group[:260]!r}")
        if self.instance_id is not None and (not _TOPIC.fullmatch(self.instance_id) or self.instance_id in {".", ".."}):
            raise UsageError(
                f"instance_id: expected up to 249 letters, digits, dots, _ and -, found {self.instance_id[:260]!r}"
            )
