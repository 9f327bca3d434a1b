"""The closed list of events a Kafka source counts, and the buffer of warnings for the next delivery."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from monitor.sources.base import Delivery


class KafkaEvent(StrEnum):
    """Names under which a delivery counts what happened. They are public: they become label values."""

    MESSAGES_READ = "messages_read"
    """Messages taken from partitions, refused ones and tombstones included."""
    BYTES_READ = "bytes_read"
    """Bytes of their values."""
    TOMBSTONES = "tombstones"
    """Messages without a value; they say that a key was deleted, and hold no record."""
    MESSAGES_REPEATED = "messages_repeated"
    """Messages that a fetch brought although they had been taken; left out."""
    REBALANCES = "rebalances"
    """Times that the group shared its partitions anew, as this process saw it."""
    REJOINS = "rejoins"
    """Times that this process rejoined the group because partitions were assigned to no member."""
    PARTITIONS_ASSIGNED = "partitions_assigned"
    PARTITIONS_REVOKED = "partitions_revoked"
    PARTITIONS_LOST = "partitions_lost"
    """Partitions that others were given because this process had been silent for too long."""
    PARTITIONS_RESUMED = "partitions_resumed"
    """Partitions that went on where this process's own state, or a commit of the group, says."""
    PARTITIONS_REWOUND = "partitions_rewound"
    """Partitions of which windows were rebuilt from the log, because nothing newer was stored here."""
    PARTITIONS_STARTED = "partitions_started"
    """Partitions read for the first time ever by this group."""
    PARTITIONS_TRUNCATED = "partitions_truncated"
    """Partitions whose log ended before what had been read of it; read again from their beginning."""
    TOPICS_RECREATED = "topics_recreated"
    """Partitions of a topic that was deleted and made anew; read from their beginning."""
    RECORDS_LOST = "records_lost"
    """Offsets that retention deleted before they were read: at most so many records."""
    REWINDS_CUT_SHORT = "rewinds_cut_short"
    """Windows that could be rebuilt only in part, because retention had deleted the rest."""
    BATCHES_UNREADABLE = "batches_unreadable"
    """Damaged batches of messages that were passed over."""
    OFFSETS_UNREADABLE = "offsets_unreadable"
    """Offsets passed over with them: at most so many records."""
    OFFSET_COMMITS = "offset_commits"
    OFFSET_COMMIT_ERRORS = "offset_commit_errors"
    """Reports to the group that failed; nothing is lost by it, the next one says more."""
    CONNECTIONS = "connections"
    """Times that a connection to the cluster was made."""
    STALLS = "stalls"
    """Times that a partition did not move although more was there, and the connection was made anew."""
    OVER_ROOM = "over_room"
    """Times that this process was given more partitions than limits.window_bytes has room for."""
    POSITIONS_DAMAGED = "positions_damaged"
    """Stored positions that could not be understood; what was stored of their partitions was forgotten."""
    DEAD_LETTERS = "dead_letters"
    """Pointers to refused records that were handed over for the dead-letter topic."""
    DEAD_LETTERS_SENT = "dead_letters_sent"
    DEAD_LETTERS_DROPPED = "dead_letters_dropped"
    """Those that were not sent: too many waited, or the topic took none."""
    DECODER_ERRORS = "decoder_errors"
    """Messages on which the decoder failed as it never should; passed over."""
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
    """Messages are compressed in a way that cannot be read here."""
    ERRORS_OTHER = "errors_other"
    """Anything else that the cluster or the client library reported, mostly passing."""


@dataclass(slots=True)
class Notes:
    """Counts and sentences. Used by the thread that ingests."""

    counted: Counter[str] = field(default_factory=Counter)
    events: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    _standing: dict[str, str] = field(default_factory=dict)

    def warn_once(self, about: str, sentence: str) -> bool:
        """Say something that goes on, when it begins or becomes another, and tell whether it did."""
        if self._standing.get(about) == sentence:
            return False
        self._standing[about] = sentence
        self.warnings.append(sentence)
        return True

    def over(self, about: str, sentence: str) -> None:
        """Say that something that went on is over, if it did."""
        if self._standing.pop(about, None) is not None:
            self.events.append(sentence)

    def take(self, origin: str, owned: frozenset[str] | None = None) -> Delivery | None:
        """Return a delivery without records; None when there is nothing to say."""
        self.counted = +self.counted
        if not (self.counted or self.events or self.warnings) and owned is None:
            return None
        counted, self.counted = self.counted, Counter()
        events, self.events = tuple(self.events), []
        warnings, self.warnings = tuple(self.warnings), []
        return Delivery(origin, counted=counted, events=events, warnings=warnings, owned=owned)
