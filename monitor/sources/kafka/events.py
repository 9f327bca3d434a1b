"""The events counted by a Kafka source, and the buffer of messages for the next delivery."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from monitor.sources.base import Delivery


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


@dataclass(slots=True)
class EventLog:
    """Pending counts and messages. Used by the ingestion thread."""

    counted: Counter[str] = field(default_factory=Counter)
    events: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    _active: dict[str, str] = field(default_factory=dict)

    def warn_once(self, about: str, message: str) -> bool:
        """Warn about a condition when it starts or changes; return whether it did."""
        if self._active.get(about) == message:
            return False
        self._active[about] = message
        self.warnings.append(message)
        return True

    def resolved(self, about: str, message: str) -> None:
        """Log the end of a condition, if it was active."""
        if self._active.pop(about, None) is not None:
            self.events.append(message)

    def take(self, origin: str, owned: frozenset[str] | None = None) -> Delivery | None:
        """Return a delivery without records; None if there is nothing to report."""
        self.counted = +self.counted
        if not (self.counted or self.events or self.warnings) and owned is None:
            return None
        counted, self.counted = self.counted, Counter()
        events, self.events = tuple(self.events), []
        warnings, self.warnings = tuple(self.warnings), []
        return Delivery(origin, counted=counted, events=events, warnings=warnings, owned=owned)
