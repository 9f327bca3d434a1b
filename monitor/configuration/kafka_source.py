"""The settings of a source of type `kafka`."""

import re
from dataclasses import dataclass
from pathlib import Path

from monitor.configuration.directory_source import parted
from monitor.configuration.kafka_instance import instance_key, read_instance_id
from monitor.configuration.kafka_security import read_sasl, read_tls, remark_on_secrets
from monitor.configuration.kinds import Fault, Kind, ListOf, Unfit, unfit
from monitor.configuration.number_kinds import Duration, Integer, Size
from monitor.configuration.section import Section
from monitor.configuration.text_kinds import Choice, Flag, OneOf, Text
from monitor.configuration.yaml_text import Node, Scalar
from monitor.errors import UsageError
from monitor.sources.kafka_options import Assignor, Isolation, KafkaOptions, Start

_DAY = 86400.0

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
class _Broker(Kind[str]):
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
