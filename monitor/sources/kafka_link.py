"""The link to the cluster: whether there is one, what is the matter with it, and when it is tried again."""

from collections.abc import Callable

from monitor.sources.kafka_connecting import Backoff, Connect, Connection, Explain
from monitor.sources.kafka_consumer import Consumer
from monitor.sources.kafka_counted import Counted
from monitor.sources.kafka_notes import Notes
from monitor.sources.kafka_options import KafkaOptions
from monitor.sources.kafka_ownership import Ownership
from monitor.sources.kafka_trouble import Broken, Kind, Trouble, sentence

_LONGEST_REST = 5.0
"""After an error that passes. Who rests for longer keeps the whole group waiting when it shares partitions anew."""


class Link:
    """A connection, and the sentences about it."""

    def __init__(
        self,
        options: KafkaOptions,
        ownership: Ownership,
        notes: Notes,
        *,
        connect: Connect,
        explain: Explain,
        monotonic: Callable[[], float],
    ) -> None:
        self._options = options
        self._notes = notes
        self._connection = Connection(options, ownership, connect=connect, explain=explain, monotonic=monotonic)
        self._rest = Backoff(monotonic, _LONGEST_REST)
        self.trouble: str | None = f"kafka {options.address}: has not been reached yet"
        """What is the matter; None when nothing is."""
        self._topics: str | None = None
        self._monotonic = monotonic
        self._in_trouble_since: float | None = None

    @property
    def consumer(self) -> Consumer | None:
        """The consumer, as long as there is one."""
        return self._connection.consumer

    @property
    def waits_for(self) -> str | None:
        """What is the matter with the cluster, or with topics in it; None when nothing is."""
        return self.trouble or self._topics

    @property
    def rests(self) -> bool:
        """Whether nothing is asked of the cluster for a moment."""
        return self._rest.left > 0.0

    def connected(self) -> bool:
        """Try to connect, if there is no connection, and tell whether there is a new one now."""
        if self.consumer is not None:
            return False
        try:
            consumer = self._connection.ask()
        except Trouble as trouble:
            self._tell(trouble, self._connection.backoff)
            return False
        if consumer is None:
            return False
        self._notes.counted[Counted.CONNECTIONS] += 1
        self.is_well()
        return True

    def in_trouble(self, trouble: Trouble) -> None:
        """Go on after a while; over a new connection, where the old one will not do."""
        if isinstance(trouble, Broken) or trouble.kind.needs_people or self._may_be_put_out(trouble):
            self._connection.drop()
            self._connection.backoff.failed(slowly=trouble.kind.needs_people)
            self._tell(trouble, self._connection.backoff)
        else:
            self._rest.failed()
            self._tell(trouble, self._rest)

    def is_well(self) -> None:
        """The cluster answers."""
        self.trouble = self._in_trouble_since = None
        self._notes.over("cluster", f"kafka {self._options.address}: answers again")
        self._rest.worked()

    def topics_missing(self, trouble: Trouble | None) -> None:
        """Some topics are not there, or not for us; the others are read all the same."""
        if trouble is None:
            self._topics = None
            self._notes.over("topics", f"kafka {self._options.address}: all topics are there")
            return
        self._topics = sentence(trouble, self._options)
        if self._notes.warn_once("topics", self._topics):
            self._notes.counted[trouble.kind.counted] += 1

    def close(self) -> None:
        """Let go of everything."""
        self._connection.close()

    def _may_be_put_out(self, trouble: Trouble) -> bool:
        """Tell whether nobody has answered for so long that the group may have given our partitions to others.

        Who went on counting them would have them counted twice in all.
        """
        if trouble.kind is not Kind.UNREACHABLE:
            return False
        now = self._monotonic()
        self._in_trouble_since = now if self._in_trouble_since is None else self._in_trouble_since
        return now - self._in_trouble_since > self._options.session_timeout_seconds

    def _tell(self, trouble: Trouble, backoff: Backoff) -> None:
        self._notes.counted[trouble.kind.counted] += 1
        said = sentence(trouble, self._options)
        self.trouble = f"{said}; trying again every {backoff.seconds:g} s"
        # That the wait grows is no news.
        self._notes.warn_once("cluster", said)
