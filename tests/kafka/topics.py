"""Administration of a broker: topics, records, offsets and ACLs."""

import secrets
import time
from collections.abc import Callable, Mapping

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewPartitions, NewTopic

_LIMIT_SECONDS = 30.0


def unique(name: str) -> str:
    """Return a unique name for a topic, group or transaction."""
    return f"{name}-{secrets.token_hex(4)}"


class Topics:
    """A running broker."""

    bootstrap: str

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def create_topic(
        self, name: str = "", partitions: int = 1, replication: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic, wait until every partition has a leader, and return its name, by default a unique one."""
        name = name or unique("outputs")
        admin = self._admin()
        for done in admin.create_topics([NewTopic(name, partitions, replication, config=dict(config or {}))]).values():
            done.result(_LIMIT_SECONDS)
        self._wait_until(
            lambda: self._with_leader(admin, name) == partitions, f"{partitions} partitions of {name} with a leader"
        )
        return name

    def add_partitions(self, name: str, total: int) -> None:
        """Add partitions to a topic, and wait until each has a leader."""
        admin = self._admin()
        for done in admin.create_partitions([NewPartitions(name, total)]).values():
            done.result(_LIMIT_SECONDS)
        self._wait_until(lambda: self._with_leader(admin, name) == total, f"{total} partitions of {name} with a leader")

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until it is gone."""
        admin = self._admin()
        for done in admin.delete_topics([name]).values():
            done.result(_LIMIT_SECONDS)
        self._wait_until(lambda: name not in admin.list_topics(timeout=5).topics, f"{name} gone")

    def delete_records(self, name: str, before: Mapping[int, int]) -> None:
        """Delete the records before an offset in each partition, as retention does."""
        wanted = [TopicPartition(name, partition, offset) for partition, offset in before.items()]
        # Kept in a variable: the futures of a collected client never complete.
        admin = self._admin()
        for done in admin.delete_records(wanted).values():
            done.result(_LIMIT_SECONDS)

    def committed_offsets(self, group: str) -> dict[tuple[str, int], int]:
        """Return the committed offsets of a group, by topic and partition."""
        admin = self._admin()
        (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        found = future.result(_LIMIT_SECONDS).topic_partitions or []
        return {(one.topic, one.partition): one.offset for one in found}

    def allow(self, kind: ResourceType, name: str, user: str, *operations: AclOperation) -> None:
        """Add ACLs that allow a user some operations; all other users lose access."""
        admin = self._admin()
        rules = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", one, AclPermissionType.ALLOW)
            for one in operations
        ]
        for done in admin.create_acls(rules).values():
            done.result(_LIMIT_SECONDS)

    def in_sync(self, brokers: int) -> bool:
        """Return whether the broker answers, knows as many brokers, and all replicas are in sync."""
        try:
            found = self._admin().list_topics(timeout=2)
        except KafkaException:
            return False
        partitions = [partition for topic in found.topics.values() for partition in topic.partitions.values()]
        return len(found.brokers) >= brokers and all(
            len(one.isrs) >= min(brokers, len(one.replicas)) for one in partitions
        )

    def _admin(self) -> AdminClient:
        # No log: the broker may not have started yet.
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    @staticmethod
    def _with_leader(admin: AdminClient, name: str) -> int:
        found = admin.list_topics(name, timeout=5).topics[name]
        return sum(partition.leader >= 0 for partition in found.partitions.values())

    @staticmethod
    def _wait_until(condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _LIMIT_SECONDS
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"expected {what} within {_LIMIT_SECONDS:.0f} s")
            time.sleep(0.05)
