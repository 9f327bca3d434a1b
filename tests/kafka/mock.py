"""The mock cluster inside the confluent-kafka wheel: speaks the protocol on loopback, and fails on demand.

kafka-python reaches it with `api_version=MOCK_API_VERSION` only. It knows no timestamps and makes no topics on request.
"""

import ctypes
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import confluent_kafka

MOCK_API_VERSION = (2, 3)
_PRODUCER = 0
_GROUP, _TRANSACTION = 0, 1


class Request(IntEnum):
    """Requests that can be made to fail, by the numbers that the protocol gives them."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14


class MockCluster:
    """Some brokers that are none; a context in which they run."""

    def __init__(self, brokers: int = 1) -> None:
        self._library = _library()
        said = ctypes.create_string_buffer(256)
        # The mock lives inside a client, which the library owns; that client talks to nobody.
        configuration = self._library.rd_kafka_conf_new()
        self._client = self._library.rd_kafka_new(_PRODUCER, configuration, said, ctypes.c_size_t(len(said)))
        if not self._client:
            raise RuntimeError(f"librdkafka: expected a client for the mock cluster, got {said.value.decode()!r}")
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._client, brokers)
        if not self._cluster:
            raise RuntimeError(f"librdkafka: expected a mock cluster of {brokers} brokers, got none")
        self.bootstrap: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def __enter__(self) -> Self:
        """Return itself; it runs from its making."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End the brokers and their threads."""
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)

    def create_topic(self, name: str, partitions: int = 1, replication: int = 1) -> str:
        """Make a topic, and return its name."""
        self._call("topic_create", name.encode(), partitions, replication)
        return name

    def fail_next(self, request: Request, *errors: int) -> None:
        """Answer the next requests of a kind with these errors, one each; numbers as in confluent_kafka.KafkaError."""
        codes = (ctypes.c_int * len(errors))(*errors)
        # Returns nothing, so there is nothing to check.
        push = self._library.rd_kafka_mock_push_request_errors_array
        push(self._cluster, ctypes.c_int16(request), ctypes.c_size_t(len(errors)), codes)

    def heal(self, request: Request) -> None:
        """Take back the errors that are still to come."""
        self._library.rd_kafka_mock_clear_request_errors(self._cluster, ctypes.c_int16(request))

    def fail_topic(self, name: str, error: int) -> None:
        """Show a topic with an error in metadata; 0 ends it."""
        self._library.rd_kafka_mock_topic_set_error(self._cluster, name.encode(), error)

    def set_down(self, broker: int) -> None:
        """Close a broker's connections and refuse new ones."""
        self._call("broker_set_down", broker)

    def set_up(self, broker: int) -> None:
        """Let a broker answer again."""
        self._call("broker_set_up", broker)

    def slow_down(self, broker: int, milliseconds: int) -> None:
        """Delay everything that a broker answers."""
        self._call("broker_set_rtt", broker, milliseconds)

    def set_leader(self, topic: str, partition: int, broker: int) -> None:
        """Move a partition to another broker; -1 leaves it without a leader."""
        self._call("partition_set_leader", topic.encode(), partition, broker)

    def set_coordinator(self, group: str, broker: int) -> None:
        """Let another broker coordinate a consumer group."""
        self._call("coordinator_set", b"group", group.encode(), broker)

    def _call(self, name: str, *words: object) -> None:
        code = getattr(self._library, f"rd_kafka_mock_{name}")(self._cluster, *words)
        if code != 0:
            raise RuntimeError(f"rd_kafka_mock_{name}: expected success, got {confluent_kafka.KafkaError(code)!r}")


def _library() -> Any:
    """Return the library that the extension of confluent-kafka has loaded."""
    folder = Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs"
    found = sorted(folder.glob("librdkafka-*.so*"))
    if len(found) != 1:
        raise RuntimeError(
            f"{folder}: expected one librdkafka, found {len(found)}; install confluent-kafka from its wheel"
        )
    library = ctypes.CDLL(str(found[0]))
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_mock_cluster_new"):
        getattr(library, name).restype = ctypes.c_void_p
    library.rd_kafka_mock_cluster_bootstraps.restype = ctypes.c_char_p
    pointer = ctypes.c_void_p
    library.rd_kafka_new.argtypes = [ctypes.c_int, pointer, ctypes.c_char_p, ctypes.c_size_t]
    library.rd_kafka_mock_cluster_new.argtypes = [pointer, ctypes.c_int]
    library.rd_kafka_destroy.argtypes = [pointer]
    for name in ("cluster_bootstraps", "cluster_destroy"):
        getattr(library, f"rd_kafka_mock_{name}").argtypes = [pointer]
    text, number = ctypes.c_char_p, ctypes.c_int32
    signatures: dict[str, list[Any]] = {
        "topic_create": [text, ctypes.c_int, ctypes.c_int],
        "topic_set_error": [text, ctypes.c_int],
        "broker_set_down": [number],
        "broker_set_up": [number],
        "broker_set_rtt": [number, ctypes.c_int],
        "partition_set_leader": [text, number, number],
        "coordinator_set": [text, text, number],
        "push_request_errors_array": [ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(ctypes.c_int)],
        "clear_request_errors": [ctypes.c_int16],
    }
    for name, words in signatures.items():
        getattr(library, f"rd_kafka_mock_{name}").argtypes = [pointer, *words]
    return library
