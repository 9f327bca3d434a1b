"""A cluster of one real Kafka broker or more on free ports of this machine; the first is the controller."""

import base64
import os
import time
import uuid
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kafka.jars import broker_jars, version
from tests.kafka.node import BrokerFailed, Jars, Node
from tests.kafka.security import Security
from tests.kafka.topics import Topics

_START_SECONDS = 90.0
_ATTEMPTS = 3
_PORT_IN_USE = "Address already in use"


class Cluster(Topics):
    """Real brokers that run within a context. Raises NoBroker without jars, and BrokerFailed if a start fails."""

    def __init__(self, folder: Path, size: int = 1, *, secured: bool = False, heap: str = "256m") -> None:
        super().__init__("")
        self.folder = folder
        self.security = Security.create(folder / "security") if secured else None
        self.nodes: dict[int, Node] = {}
        self._size = size
        self._jars = Jars(broker_jars(), version(), heap)

    def __enter__(self) -> Self:
        """Start all nodes, and wait until they answer."""
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Kill all nodes."""
        self.stop()

    def start(self) -> None:
        """Start all nodes with empty logs; retry on other ports if one is in use."""
        for attempt in range(_ATTEMPTS):
            try:
                self._start(self.folder / f"attempt-{attempt}")
            except BrokerFailed as error:
                if _PORT_IN_USE not in str(error) or attempt + 1 == _ATTEMPTS:
                    raise
                self.stop()
            else:
                return

    def record_classes(self) -> None:
        """Save class data for later starts when this is stopped, unless there are some."""
        if not self._jars.archive.exists():
            self._jars = replace(self._jars, recorded=self._jars.archive.with_suffix(f".{os.getpid()}"))

    def stop(self) -> None:
        """Kill all nodes; their logs are not used again."""
        if (fresh := self._jars.recorded) is not None and self.nodes[1].running():
            self.nodes[1].stop()
            if fresh.exists():
                fresh.replace(self._jars.archive)
        for node in self.nodes.values():
            node.kill()

    def kill(self, number: int) -> None:
        """Kill a node."""
        self.nodes[number].kill()

    def restart(self, number: int) -> None:
        """Stop a node unless it was killed, and start it with the same ports and log."""
        self.nodes[number].stop()
        self.nodes[number].start()
        self._wait()

    def address(self, listener: str) -> str:
        """Return the bootstrap servers of a listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
        return ",".join(f"127.0.0.1:{node.ports[listener]}" for node in self.nodes.values())

    def _start(self, folder: Path) -> None:
        listeners = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL") if self.security else ("PLAINTEXT",)
        numbers = range(1, self._size + 1)
        self.nodes = {number: Node(number, folder / f"node-{number}", self._jars, listeners) for number in numbers}
        self.bootstrap = self.address("PLAINTEXT")
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        for node in self.nodes.values():
            node.write(self._settings())
        formatting = [(node, node.format(cluster_id, self.security)) for node in self.nodes.values()]
        for node, process in formatting:
            if process.wait(_START_SECONDS) != 0:
                raise BrokerFailed(f"Kafka {self._jars.version} could not format its storage; {node.log_tail()}")
        for node in self.nodes.values():
            node.start()
        self._wait()

    def _settings(self) -> dict[str, str]:
        copies, needed = str(self._size), "1"
        settings = {
            "controller.quorum.voters": f"1@127.0.0.1:{self.nodes[1].ports['CONTROLLER']}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
            "auto.create.topics.enable": "false",
            "min.insync.replicas": needed,
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": needed,
            "transaction.state.log.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
            # A resource is open to everyone until it has an ACL; the PLAINTEXT listener is always allowed.
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "super.users": "User:ANONYMOUS",
            "group.min.session.timeout.ms": "1000",
            # The default would fill a small heap.
            "log.cleaner.dedupe.buffer.size": "4194304",
            # Failover after three seconds instead of nine.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
        }
        if not self._jars.version.startswith("3."):
            settings["share.coordinator.state.topic.replication.factor"] = copies
            settings["share.coordinator.state.topic.min.isr"] = needed
        return settings | (self.security.settings() if self.security else {})

    def _wait(self) -> None:
        """Wait until all started nodes answer, know each other, and are in sync."""
        deadline = time.monotonic() + _START_SECONDS
        nodes = [node for node in self.nodes.values() if node.wanted]
        while not all(Topics(f"127.0.0.1:{node.ports['PLAINTEXT']}").in_sync(len(nodes)) for node in nodes):
            for node in nodes:
                if not node.running():
                    raise BrokerFailed(f"Kafka {self._jars.version} exited at its start; {node.log_tail()}")
            if time.monotonic() > deadline:
                log = "\n".join(node.log_tail() for node in nodes)
                raise BrokerFailed(f"Kafka {self._jars.version} did not answer in {_START_SECONDS:.0f} s; {log}")
            time.sleep(0.1)
