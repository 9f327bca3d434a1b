"""A cluster of one or three real Kafka brokers on free ports of this machine."""

import base64
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kafka.jars import broker_jars, version
from tests.kafka.node import BrokerFailed, Jars, Node
from tests.kafka.security import Security
from tests.kafka.topics import Topics

_START_SECONDS = 90.0
_ATTEMPTS = 3
_TAKEN = "Address already in use"


class Cluster(Topics):
    """Real brokers; a context in which they run. Raises NoBroker without jars and BrokerFailed without a start."""

    def __init__(self, folder: Path, size: int = 1, *, secured: bool = False, heap: str = "256m") -> None:
        super().__init__("")
        self.folder = folder
        self.security = Security.made_in(folder / "security") if secured else None
        self.nodes: dict[int, Node] = {}
        self._size = size
        self._jars = Jars(broker_jars(), version(), heap)

    def __enter__(self) -> Self:
        """Start all nodes, and return when they answer."""
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Stop all nodes."""
        self.stop()

    def start(self) -> None:
        """Start all nodes with empty logs; on other ports when somebody took one in the meantime."""
        for attempt in range(_ATTEMPTS):
            try:
                self._start(self.folder / f"attempt-{attempt}")
            except BrokerFailed as error:
                if _TAKEN not in str(error) or attempt + 1 == _ATTEMPTS:
                    raise
                self.stop()
            else:
                return

    def stop(self) -> None:
        """Stop all nodes, with what they had in memory."""
        # Their logs are thrown away: nobody needs the orderly end that SIGTERM gives.
        for node in self.nodes.values():
            node.kill()

    def kill(self, number: int) -> None:
        """End a node with SIGKILL."""
        self.nodes[number].kill()

    def restart(self, number: int) -> None:
        """Start a node again on its ports and its log, after a kill or instead of an orderly stop."""
        self.nodes[number].stop()
        self.nodes[number].start()
        self._wait()

    def address(self, door: str) -> str:
        """Return the bootstrap servers of a door: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
        return ",".join(f"127.0.0.1:{node.ports[door]}" for node in self.nodes.values())

    def _start(self, folder: Path) -> None:
        doors = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL") if self.security else ("PLAINTEXT",)
        numbers = range(1, self._size + 1)
        self.nodes = {number: Node(number, folder / f"node-{number}", self._jars, doors) for number in numbers}
        self.bootstrap = self.address("PLAINTEXT")
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        for node in self.nodes.values():
            node.write(self._settings())
        formatting = [(node, node.format(cluster_id, self.security)) for node in self.nodes.values()]
        for node, process in formatting:
            if process.wait(_START_SECONDS) != 0:
                raise BrokerFailed(f"Kafka {self._jars.version} could not format a log; {node.last_words()}")
        for node in self.nodes.values():
            node.start()
        self._wait()

    def _settings(self) -> dict[str, str]:
        copies, needed = str(self._size), str(min(2, self._size))
        voters = [f"{number}@127.0.0.1:{node.ports['CONTROLLER']}" for number, node in self.nodes.items()]
        settings = {
            "process.roles": "broker,controller",
            "controller.quorum.voters": ",".join(voters),
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
            # Everything is for everybody, until a test says of something whose it is; at the open door nothing is refused.
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "super.users": "User:ANONYMOUS",
            "group.min.session.timeout.ms": "1000",
            # Its default alone would fill a small heap.
            "log.cleaner.dedupe.buffer.size": "4194304",
            # A dead broker's partitions have a new leader after three seconds instead of nine.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
        }
        if not self._jars.version.startswith("3."):
            settings["share.coordinator.state.topic.replication.factor"] = copies
            settings["share.coordinator.state.topic.min.isr"] = needed
        return settings | (self.security.settings() if self.security else {})

    def _wait(self) -> None:
        """Return when all wanted nodes answer, know each other, and have caught up."""
        deadline = time.monotonic() + _START_SECONDS
        nodes = [node for node in self.nodes.values() if node.wanted]
        while not all(Topics(f"127.0.0.1:{node.ports['PLAINTEXT']}").settled(len(nodes)) for node in nodes):
            for node in nodes:
                if not node.running():
                    raise BrokerFailed(f"Kafka {self._jars.version} ended at its start; {node.last_words()}")
            if time.monotonic() > deadline:
                said = "\n".join(node.last_words() for node in nodes)
                raise BrokerFailed(f"Kafka {self._jars.version} did not answer in {_START_SECONDS:.0f} s; {said}")
            time.sleep(0.1)
