"""The settings of a Kafka source, each with its default."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from monitor.errors import UsageError

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_BROKER = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]@]+):([0-9]{1,5})")


class Start(StrEnum):
    """Where to begin in a partition of which nothing is known, neither here nor to the group."""

    LATEST = "latest"
    EARLIEST = "earliest"
    SINCE = "since"
    """With the records of the last `since_seconds`."""


class Isolation(StrEnum):
    """Which records of transactions are read."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class Assignor(StrEnum):
    """How the members of the group share partitions. All of them must use the same one."""

    COOPERATIVE = "cooperative"
    """Only partitions that move stop for a moment."""
    RANGE = "range"


class Mechanism(StrEnum):
    """How a user proves who they are."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """An encrypted connection. Files are read whenever a connection is made, so that certificates can be renewed."""

    ca: Path | None = None
    """Certificates of those who sign the brokers' certificates; the system's unless told otherwise."""
    cert: Path | None = None
    key: Path | None = None
    """Our own certificate and its key, where brokers ask for one."""
    password_file: Path | None = None
    """A file with the password of the key."""
    check_hostname: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.key is not None and self.cert is None:
            raise UsageError("tls.cert: expected a certificate beside the key, found none")
        if self.password_file is not None and self.cert is None:
            raise UsageError("tls.cert: expected a certificate whose key has the password, found none")


@dataclass(frozen=True, slots=True)
class SaslOptions:
    """Who we are, and where the proof of it lies. The secret is read whenever a connection is made."""

    mechanism: Mechanism
    user: str = ""
    password_file: Path | None = None
    token_file: Path | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
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
    """Which topics are read, as whom, and how."""

    brokers: tuple[str, ...]
    """Some brokers of the cluster, each as `host:port`; the others are learned from them."""
    group: str
    """The consumer group. Processes of one group share the partitions."""
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    """A regular expression for names of topics, in place of a list."""
    instance_id: str | None = None
    """A name that this process keeps over restarts: back within the session timeout, it keeps its partitions too."""
    start: Start = Start.LATEST
    since_seconds: float | None = None
    isolation: Isolation = Isolation.READ_COMMITTED
    assignor: Assignor = Assignor.COOPERATIVE
    session_timeout_seconds: float = 45.0
    """How long a process may be silent before its partitions are given to others."""
    max_poll_records: int = 10_000
    """Messages taken in one poll."""
    fetch_max_bytes: int = 50 << 20
    """What a broker sends in one answer."""
    partition_fetch_bytes: int = 4 << 20
    """What it sends of one partition in one answer."""
    max_message_bytes: int = 8 << 20
    """Longer messages are refused and counted."""
    tls: TlsOptions | None = None
    sasl: SaslOptions | None = None
    client_rack: str = ""
    """Where this process runs, so that the nearest replica can be read."""
    stall_after_seconds: float = 120.0
    """How long a partition may hold something unread, and not move, before the connection is made anew."""
    commit_seconds: float = 10.0
    """How often offsets are reported to the group, for lag tools and for replicas without our disk."""
    dead_letter_topic: str | None = None
    """Where pointers to refused records are sent."""
    dead_letter_payload: bool = False
    """Whether the refused messages themselves are sent there too."""
    api_version: tuple[int, ...] | None = None
    """The version of brokers that cannot tell it themselves; for tests."""

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        self._check_numbers()
        self._check_choices()
        self._check_topics()
        self._check_membership()

    @property
    def address(self) -> str:
        """The brokers as messages name them."""
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
            # What stands before an @ may be a password, and is not repeated.
            if found is None or not 0 < int(found.group(2)) < 1 << 16:
                shown = "something with an @" if "@" in broker else repr(broker)
                raise UsageError(f"brokers: expected host:port such as kafka:9092, found {shown}")
        if not self.group or len(self.group) > 249:
            raise UsageError(f"group: expected a name of 1 to 249 characters, found {self.group[:260]!r}")
        if self.instance_id is not None and (not _TOPIC.fullmatch(self.instance_id) or self.instance_id in {".", ".."}):
            raise UsageError(
                f"instance_id: expected up to 249 letters, digits, dots, _ and -, found {self.instance_id[:260]!r}"
            )
