"""The mock cluster of librdkafka, which fails on demand.

kafka-python needs `api_version=MOCK_API_VERSION` for it. It has no timestamps and no automatic creation of topics.
"""

import ctypes
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import confluent_kafka

MOCK_API_VERSION = (2, 3)
_PRODUCER = 0


class Request(IntEnum):
    """Requests that can fail, by their API keys."""

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
    """Mock brokers that run within a context."""

    def __init__(self, brokers: int = 1) -> None:
        self._library = _library()
        error = ctypes.create_string_buffer(256)
        # The mock belongs to a client, which is otherwise unused.
        configuration = self._library.rd_kafka_conf_new()
        self._client = self._library.rd_kafka_new(_PRODUCER, configuration, error, ctypes.c_size_t(len(error)))
        if not self._client:
            raise RuntimeError(f"librdkafka: expected a client for the mock cluster, got {error.value.decode()!r}")
        self._cluster = self._library.rd_kafka_mock_cluster_new(self._client, brokers)
        if not self._cluster:
            raise RuntimeError(f"librdkafka: expected a mock cluster of {brokers} brokers, got none")
        self.bootstrap: str = self._library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def __enter__(self) -> Self:
        """Return itself; it already runs."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop the brokers and their threads."""
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)

    def create_topic(self, name: str, partitions: int = 1, replication: int = 1) -> str:
        """Create a topic; return its name."""
        self._call("topic_create", name.encode(), partitions, replication)
        return name

    def fail_next(self, request: Request, *errors: int) -> None:
        """Answer the next requests of a kind with these errors, one each; codes of confluent_kafka.KafkaError."""
        codes = (ctypes.c_int * len(errors))(*errors)
        push = self._library.rd_kafka_mock_push_request_errors_array
        push(self._cluster, ctypes.c_int16(request), ctypes.c_size_t(len(errors)), codes)

    def heal(self, request: Request) -> None:
        """Cancel the remaining errors."""
        self._library.rd_kafka_mock_clear_request_errors(self._cluster, ctypes.c_int16(request))

    def fail_topic(self, name: str, error: int) -> None:
        """Set the error of a topic in metadata; 0 clears it."""
        self._library.rd_kafka_mock_topic_set_error(self._cluster, name.encode(), error)

    def set_down(self, broker: int) -> None:
        """Close a broker's connections and refuse new ones."""
        self._call("broker_set_down", broker)

    def set_up(self, broker: int) -> None:
        """Let a broker answer again."""
        self._call("broker_set_up", broker)

    def slow_down(self, broker: int, milliseconds: int) -> None:
        """Delay all responses of a broker."""
        self._call("broker_set_rtt", broker, milliseconds)

    def set_leader(self, topic: str, partition: int, broker: int) -> None:
        """Set the leader of a partition; -1 is none."""
        self._call("partition_set_leader", topic.encode(), partition, broker)

    def set_coordinator(self, group: str, broker: int) -> None:
        """Set the coordinator of a consumer group."""
        self._call("coordinator_set", b"group", group.encode(), broker)

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._library, f"rd_kafka_mock_{name}")(self._cluster, *arguments)
        if code != 0:
            raise RuntimeError(f"rd_kafka_mock_{name}: expected success, got {confluent_kafka.KafkaError(code)!r}")


def _library() -> Any:
    """Return the librdkafka that confluent-kafka has loaded."""
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
    for name, arguments in signatures.items():
        getattr(library, f"rd_kafka_mock_{name}").argtypes = [pointer, *arguments]
    return library
