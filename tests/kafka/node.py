"""One Kafka broker: a Java process with its files, ports and log."""

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
# For a quick start rather than high throughput.
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
    """A broker did not start or did not answer; the message ends with the last lines of its log."""


@dataclass(frozen=True)
class Jars:
    """A version of Kafka and its heap size."""

    folder: Path
    version: str
    heap: str = "256m"
    recorded: Path | None = None
    """Where a broker saves its class data when it is stopped."""

    @property
    def archive(self) -> Path:
        """The class data of this Java and Kafka in the cache, which halve the time of a start."""
        java = shutil.which("java")
        build = Path(java).resolve().stat().st_mtime_ns if java else 0
        return self.folder.with_name(f"{self.folder.name}-{build:x}.jsa")

    def java(self, *arguments: object, heap: str | None = None, recorded: Path | None = None) -> list[str]:
        """Return a command line; the process dies with its parent."""
        # Java ignores a missing archive.
        classes = f"SharedArchiveFile={self.archive}" if recorded is None else f"ArchiveClassesAtExit={recorded}"
        parent_death = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        return [
            *parent_death,
            "java",
            f"-Xmx{heap or self.heap}",
            *_JAVA,
            f"-XX:{classes}",
            "-cp",
            f"{self.folder}/*",
            *map(str, arguments),
        ]


class Node:
    """A broker that can be stopped or killed, and started again on its log."""

    def __init__(self, number: int, folder: Path, jars: Jars, listeners: tuple[str, ...]) -> None:
        self.number = number
        self.folder = folder
        self.ports = {listener: free_port() for listener in (*listeners, "CONTROLLER")}
        self.log = folder / "broker.log"
        self._jars = jars
        self._process: subprocess.Popen[bytes] | None = None
        self.wanted = False
        """Whether it was started and not stopped by a test."""
        (folder / "logs").mkdir(parents=True)

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def running(self) -> bool:
        """Return whether the process is alive."""
        return self._process is not None and self._process.poll() is None

    def write(self, settings: Mapping[str, str]) -> None:
        """Write server.properties: common settings and those of this node."""
        listeners = {name: port for name, port in self.ports.items() if name != "CONTROLLER" or self.number == 1}
        own = {
            "process.roles": "broker,controller" if self.number == 1 else "broker",
            "node.id": str(self.number),
            "log.dirs": str(self.folder / "logs"),
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
            "advertised.listeners": ",".join(
                f"{name}://127.0.0.1:{port}" for name, port in listeners.items() if name != "CONTROLLER"
            ),
        }
        lines = [f"{key}={value}\n" for key, value in {**settings, **own}.items()]
        (self.folder / "server.properties").write_text("".join(lines))
        old = self._jars.version.startswith("3.")
        (self.folder / "log4j.properties").write_text(_RELOAD4J if old else _LOG4J_2)

    def format(self, cluster_id: str, security: Security | None) -> subprocess.Popen[bytes]:
        """Format the storage for the first start; the caller waits for the process."""
        arguments = [
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={cluster_id}",
            "-c",
            self.folder / "server.properties",
        ]
        arguments += security.format_arguments() if security else []
        with self.log.open("ab") as log:
            return subprocess.Popen(self._jars.java(*arguments, heap="128m"), stdout=log, stderr=log)

    def start(self) -> None:
        """Start the process without waiting until it answers."""
        assert not self.running()
        self.wanted = True
        file = self.folder / "log4j.properties"
        # Log4j 1 and 2 each ignore the name of the other.
        logging = (f"-Dlog4j.configuration=file:{file}", f"-Dlog4j.configurationFile={file}")
        command = self._jars.java(
            *logging, "kafka.Kafka", self.folder / "server.properties", recorded=self._jars.recorded
        )
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL after a timeout."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        self.wanted = False
        if self._process is None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def log_tail(self) -> str:
        """Return the last lines of the log."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join([f"the last lines of {self.log}:", *lines[-_LOG_LINES:]])


def free_port() -> int:
    """Return a free port below the ephemeral range, so that no connection takes it while its broker restarts."""
    while True:
        port = random.randint(20_000, 32_000)  # noqa: S311, no secret
        with socket.socket() as candidate:
            try:
                candidate.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
