"""A source of type `kafka`: its settings, and the events it counts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Self

from monitor.errors import Problem, UsageError
from monitor.records.record_batch import MAX_MESSAGE_BYTES
from monitor.settings.section import Section
from monitor.sources.base import EventMetric, NumberBounds, Source, SourceContext, SourceOptions, check_bounds

NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")
"""The names of topics and instances."""


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


_ERRORS = "errors_"
_METRICS = (
    EventMetric("cpcmon_kafka_rebalances", "Rebalances that this process took part in.", {"": KafkaEvent.REBALANCES}),
    EventMetric(
        "cpcmon_kafka_stalls",
        "Times that a partition with unread messages made no progress.",
        {"": KafkaEvent.STALLS},
    ),
    EventMetric(
        "cpcmon_kafka_poll_errors",
        "Errors of the cluster or the connection to it.",
        {event.removeprefix(_ERRORS): event for event in KafkaEvent if event.startswith(_ERRORS)},
        "type",
    ),
    EventMetric(
        "cpcmon_kafka_records_lost",
        "Offsets that could not be read, an upper limit of the lost messages.",
        {"retention": KafkaEvent.RECORDS_LOST, "unreadable": KafkaEvent.OFFSETS_UNREADABLE},
        "reason",
    ),
)


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
            raise UsageError(Problem("cert", "a certificate beside the key", "none"))
        if self.password_file is not None and self.cert is None:
            raise UsageError(Problem("cert", "a certificate whose key has the password", "none"))


@dataclass(frozen=True, slots=True)
class SaslOptions:
    """SASL settings. The secret is read for every connection."""

    mechanism: Mechanism
    user: str = ""
    password_file: Path | None = None
    token_file: Path | None = None

    def __post_init__(self) -> None:
        """Validate the values."""
        if self.mechanism is Mechanism.OAUTHBEARER:
            if self.token_file is None:
                raise UsageError(Problem("token_file", "a file that holds the token of OAUTHBEARER", "none"))
            if self.user or self.password_file is not None:
                raise UsageError(Problem("user", "only a token_file with OAUTHBEARER", "a user or password_file"))
            return
        if not self.user:
            raise UsageError(Problem("user", f"the name of a user for {self.mechanism}", "none"))
        if self.password_file is None:
            raise UsageError(Problem("password_file", "a file that holds the password", "none"))
        if self.token_file is not None:
            raise UsageError(Problem("token_file", "OAUTHBEARER beside it", str(self.mechanism)))


BOUNDS: NumberBounds = {
    "session_timeout_seconds": (1.0, 1800.0),
    "max_poll_records": (1, 1_000_000),
    "fetch_max_bytes": (1024, 1 << 30),
    "partition_fetch_bytes": (1024, 1 << 30),
    "max_message_bytes": (64, 1 << 30),
    "stall_after_seconds": (1.0, 86400.0),
    "commit_seconds": (0.1, 3600.0),
}


@dataclass(frozen=True, slots=True)
class KafkaOptions(SourceOptions):
    """The settings of a Kafka source."""

    type_name: ClassVar[str] = "kafka"
    EVENTS: ClassVar[type[StrEnum]] = KafkaEvent
    METRICS: ClassVar[Sequence[EventMetric]] = _METRICS
    sharded: ClassVar[bool] = True

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
    max_message_bytes: int = MAX_MESSAGE_BYTES
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
    own_group: bool = False
    """Whether the name of the group has an environment variable, so that it may differ between processes."""

    def __post_init__(self) -> None:
        """Validate the values."""
        check_bounds(self, BOUNDS)
        self._check_start()
        self._check_topics()
        self._check_membership()

    @property
    def read_by_every_process(self) -> bool:
        """Whether each process has a group of its own, as far as the settings say."""
        return self.own_group

    @property
    def address(self) -> str:
        """The brokers as named in messages."""
        return ",".join(self.brokers)

    def _check_start(self) -> None:
        if (self.start is Start.SINCE) != (self.since_seconds is not None):
            found = "start: since without it" if self.since_seconds is None else f"start: {self.start} beside it"
            raise UsageError(Problem("since", "a duration exactly when start is since", found))

    def _check_topics(self) -> None:
        if bool(self.topics) == (self.pattern is not None):
            found = "neither" if self.pattern is None else "both"
            raise UsageError(Problem("topics", "a list of topics or a pattern", found))
        if len(set(self.topics)) < len(self.topics):
            raise UsageError(Problem("topics", "each topic once", "one twice"))
        if self.pattern is not None:
            try:
                expression = re.compile(self.pattern)
            except re.error as error:
                found = f"{self.pattern!r} ({error})"
                raise UsageError(Problem("pattern", "a regular expression", found)) from error
            if self.dead_letter_topic is not None and expression.match(self.dead_letter_topic):
                found = "one that the pattern matches"
                raise UsageError(Problem("dead_letters.topic", "a topic that is not read itself", found))
        if self.dead_letter_topic is not None and self.dead_letter_topic in self.topics:
            raise UsageError(Problem("dead_letters.topic", "a topic that is not read itself", "one of topics"))
        if self.dead_letter_payload and self.dead_letter_topic is None:
            raise UsageError(Problem("dead_letters.payload", "a topic beside it", "none"))

    def _check_membership(self) -> None:
        if not self.group or len(self.group) > 249:
            raise UsageError(Problem("group", "a name of 1 to 249 characters", repr(self.group[:260])))
        if self.instance_id is not None and not NAME.fullmatch(self.instance_id):
            expected = "up to 249 letters, digits, dots, _ and -"
            raise UsageError(Problem("instance_id", expected, repr(self.instance_id[:260])))

    @classmethod
    def read(cls, section: Section, folder: Path) -> Self | None:
        """Read the settings; None after a problem."""
        from monitor.sources.kafka.kafka_settings import read_kafka  # noqa: PLC0415 - it imports this module

        return read_kafka(cls, section, folder)

    @classmethod
    def check_together(cls, sources: Sequence[tuple[Section, Self]]) -> None:
        """Report sources that read the same topics, or their dead letters."""
        from monitor.sources.kafka.kafka_settings import check_clusters  # noqa: PLC0415 - it imports this module

        check_clusters(sources)

    def describe(self) -> str:
        """Return the line for `cpcmon check-config`. Contacts no broker."""
        topics = f"matching {self.pattern}" if self.pattern is not None else ", ".join(self.topics)
        return f"kafka {self.address}, topics {topics}, as group {self.group}"

    def build(self, context: SourceContext) -> Source:
        """Return the source."""
        from monitor.sources.kafka.kafka_source import KafkaSource  # noqa: PLC0415 - slow to import

        decoder = context.decoder(self.max_message_bytes)
        return KafkaSource(
            context.name,
            self,
            decoder,
            fingerprint=context.fingerprint,
            room=context.room,
            carries=context.carries,
        )
