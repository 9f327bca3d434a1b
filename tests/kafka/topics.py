"""Topics of a broker: made, emptied and removed for tests."""

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
    """Return a name that no other test has, for a topic, a group or a transaction."""
    return f"{name}-{secrets.token_hex(4)}"


class Topics:
    """A running broker, and what tests do with its topics."""

    bootstrap: str

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def create_topic(
        self, name: str = "", partitions: int = 1, replication: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        """Make a topic, wait until every partition has a leader, and return its name; without a name, a unique one."""
        name = name or unique("outputs")
        admin = self._admin()
        for done in admin.create_topics([NewTopic(name, partitions, replication, config=dict(config or {}))]).values():
            done.result(_LIMIT_SECONDS)
        self._until(lambda: self._led(admin, name) == partitions, f"{partitions} partitions of {name} with a leader")
        return name

    def add_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions, and wait until each has a leader."""
        admin = self._admin()
        for done in admin.create_partitions([NewPartitions(name, total)]).values():
            done.result(_LIMIT_SECONDS)
        self._until(lambda: self._led(admin, name) == total, f"{total} partitions of {name} with a leader")

    def delete_topic(self, name: str) -> None:
        """Remove a topic with its records, and wait until it is gone."""
        admin = self._admin()
        for done in admin.delete_topics([name]).values():
            done.result(_LIMIT_SECONDS)
        self._until(lambda: name not in admin.list_topics(timeout=5).topics, f"{name} gone")

    def delete_records(self, name: str, before: Mapping[int, int]) -> None:
        """Remove what lies before an offset in a partition, as retention does."""
        wanted = [TopicPartition(name, partition, offset) for partition, offset in before.items()]
        # Named, because futures of a client that is gone are never done.
        admin = self._admin()
        for done in admin.delete_records(wanted).values():
            done.result(_LIMIT_SECONDS)

    def reported(self, group: str) -> dict[tuple[str, int], int]:
        """Return how far a group has told that it has read, by topic and partition."""
        admin = self._admin()
        (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        found = asked.result(_LIMIT_SECONDS).topic_partitions or []
        return {(one.topic, one.partition): one.offset for one in found}

    def allow(self, kind: ResourceType, name: str, who: str, *what: AclOperation) -> None:
        """Allow somebody something; from then on, everybody else may do nothing with it."""
        admin = self._admin()
        rules = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{who}", "*", one, AclPermissionType.ALLOW)
            for one in what
        ]
        for done in admin.create_acls(rules).values():
            done.result(_LIMIT_SECONDS)

    def settled(self, brokers: int) -> bool:
        """Say whether a broker answers, knows as many brokers, and no copy of a partition is behind."""
        try:
            found = self._admin().list_topics(timeout=2)
        except KafkaException:
            return False
        partitions = [partition for topic in found.topics.values() for partition in topic.partitions.values()]
        return len(found.brokers) >= brokers and all(
            len(one.isrs) >= min(brokers, len(one.replicas)) for one in partitions
        )

    def _admin(self) -> AdminClient:
        # Silent: a broker that is not there yet is no news here.
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    @staticmethod
    def _led(admin: AdminClient, name: str) -> int:
        found = admin.list_topics(name, timeout=5).topics[name]
        return sum(partition.leader >= 0 for partition in found.partitions.values())

    @staticmethod
    def _until(holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _LIMIT_SECONDS
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"expected {what} within {_LIMIT_SECONDS:.0f} s")
            time.sleep(0.05)
