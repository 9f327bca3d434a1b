"""One Kafka broker: a Java process, its files, its ports and its log."""

import random
import shutil
import signal
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.kafka.security import Security

_STOP_SECONDS = 20
_LOG_LINES = 25
# Compiled once and simply: a broker that lives for a minute wants a quick start, not a high speed.
_JAVA = ("-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")
_LOG4J_2 = """\
rootLogger.level = info
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1} %m%n
"""
_RELOAD4J = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=%d{HH:mm:ss.SSS} %p %c{1} %m%n
"""


class BrokerFailed(Exception):
    """A broker did not start, or did not answer; the message ends with the last lines of its log."""


@dataclass(frozen=True)
class Jars:
    """Which Kafka runs, and with how much memory."""

    folder: Path
    version: str
    heap: str = "256m"

    def java(self, *words: object, heap: str | None = None) -> list[str]:
        """Return a command line; the process dies with the one that started it."""
        guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        return [*guard, "java", f"-Xmx{heap or self.heap}", *_JAVA, "-cp", f"{self.folder}/*", *map(str, words)]


class Node:
    """A broker that can be started, stopped, killed, and started again with what it had written."""

    def __init__(self, number: int, folder: Path, jars: Jars, doors: tuple[str, ...]) -> None:
        self.number = number
        self.folder = folder
        self.ports = {door: free_port() for door in (*doors, "CONTROLLER")}
        self.log = folder / "broker.log"
        self._jars = jars
        self._process: subprocess.Popen[bytes] | None = None
        self.wanted = False
        """Whether it was started, and not ended by a test."""
        (folder / "logs").mkdir(parents=True)

    @property
    def pid(self) -> int:
        """The process that runs now."""
        assert self._process is not None
        return self._process.pid

    def running(self) -> bool:
        """Say whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def write(self, settings: Mapping[str, str]) -> None:
        """Write server.properties: what all nodes have in common, and what is this one's own."""
        own = {
            "node.id": str(self.number),
            "log.dirs": str(self.folder / "logs"),
            "listeners": ",".join(f"{door}://127.0.0.1:{port}" for door, port in self.ports.items()),
            "advertised.listeners": ",".join(
                f"{door}://127.0.0.1:{port}" for door, port in self.ports.items() if door != "CONTROLLER"
            ),
        }
        lines = [f"{key}={value}\n" for key, value in {**settings, **own}.items()]
        (self.folder / "server.properties").write_text("".join(lines))
        old = self._jars.version.startswith("3.")
        (self.folder / "log4j.properties").write_text(_RELOAD4J if old else _LOG4J_2)

    def format(self, cluster_id: str, security: Security | None) -> subprocess.Popen[bytes]:
        """Make the node's log ready for its first start; the caller waits for the process."""
        words = [
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={cluster_id}",
            "-c",
            self.folder / "server.properties",
        ]
        words += security.format_words() if security else []
        with self.log.open("ab") as log:
            return subprocess.Popen(self._jars.java(*words, heap="128m"), stdout=log, stderr=log)

    def start(self) -> None:
        """Start the process; whether it answers is for the cluster to find out."""
        assert not self.running()
        self.wanted = True
        file = self.folder / "log4j.properties"
        # Either version ignores the other's name for this.
        logging = (f"-Dlog4j.configuration=file:{file}", f"-Dlog4j.configurationFile={file}")
        command = self._jars.java(*logging, "kafka.Kafka", self.folder / "server.properties")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)

    def stop(self) -> None:
        """Ask the process to end, as an operator does, and insist after a while."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process without a word."""
        self._end(signal.SIGKILL)

    def _end(self, sign: signal.Signals) -> None:
        self.wanted = False
        if self._process is None:
            return
        self._process.send_signal(sign)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def last_words(self) -> str:
        """Return the end of the log, for a message."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join([f"the last lines of {self.log}:", *lines[-_LOG_LINES:]])


def free_port() -> int:
    """Return a port that nobody listens on, below those that the kernel gives to outgoing connections.

    A broker that is killed comes back to its port: until then no connection may sit on it by chance.
    """
    while True:
        port = random.randint(20_000, 32_000)  # noqa: S311, no secret
        with socket.socket() as candidate:
            try:
                candidate.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
