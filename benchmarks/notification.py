"""The time from a drop to its notification, and the notification as its receiver got it.

The real daemon, Prometheus and Alertmanager with the intervals of the shipped files: the scanner of the demo is replaced, and
the receiver of `on-call` waits. `directory` has one daemon, `kafka` a real broker and two replicas.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from monitor.demo.demo_folder import Folder
from monitor.demo.story import REPLACED_AT, SHIFTED, Exams, records
from tests.conftest import ROOT
from tests.daemon.process import Process
from tests.daemon.process import running as running_cpcmon
from tests.kafka.broker import Cluster
from tests.kafka.producing import Writer
from tests.prometheus.chain import alertmanager
from tests.prometheus.receiver import Notification, Receiver
from tests.prometheus.running import free_port, running
from tests.servers import real_server

_BEFORE = 24_000
"""Exams before the drop: the own baselines are complete, and every window is full."""
_EACH_SECOND = 30
"""Of six scanners together."""
_PARTITIONS = 4
_LIMIT_SECONDS = 1200.0
_SOURCES = {
    "directory": "{{name: results, type: directory, path: {folder}/inbox}}",
    "kafka": '{{name: results, type: kafka, brokers: ["{bootstrap}"], group: cpcmon, topics: [exams], start: earliest}}',
}
_CONFIG = """\
storage: {{path: state}}
sources:
  - {source}
models:
  - name: density
    reference: {folder}/density.ref
    window: {{records: 1000, age: 7d}}
    # An own baseline needs sixty evaluations.
    evaluate: {{every: 5s}}
    segment_by: [[hospital], [hospital, scanner]]
    alerts: [{{name: accuracy_drop, type: change, severity: critical}}]
links:
  runbooks: https://wiki.hospital.example/cpcmon/runbooks
  dashboard: https://grafana.hospital.example/d/cpcmon
  page: https://cpcmon.hospital.example
"""

Send = Callable[[list[bytes]], None]


class _Stream:
    """Exams at a steady rate, until it is stopped."""

    def __init__(self, send: Send) -> None:
        self._send, self._exams, self._sent = send, Exams(3), 0
        self._at = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def fill(self) -> None:
        """Send what came before."""
        self._some(_BEFORE)
        self._thread.start()

    def drop(self) -> None:
        """Replace the scanner."""
        self._at = REPLACED_AT

    def close(self) -> None:
        """Stop."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(1.0):
            self._some(_EACH_SECOND)

    def _some(self, count: int) -> None:
        rows = records(self._exams.next(count, self._at), self._sent, "exam", time.time())
        self._sent += count
        self._send([json.dumps(row).encode() for row in rows])


@contextmanager
def _directory(folder: Path) -> Iterator[tuple[Send, str]]:
    (folder / "inbox").mkdir()

    def send(rows: list[bytes]) -> None:
        with (folder / "inbox" / "results.jsonl").open("ab") as file:
            file.write(b"\n".join(rows) + b"\n")

    yield send, ""


@contextmanager
def _kafka(folder: Path) -> Iterator[tuple[Send, str]]:
    with Cluster(folder / "broker") as cluster:
        cluster.create_topic("exams", _PARTITIONS)
        writer = Writer(cluster.bootstrap, "exams")

        def send(rows: list[bytes]) -> None:
            for partition in range(_PARTITIONS):
                writer.enqueue(rows[partition::_PARTITIONS], partition)
            writer.flush()

        yield send, cluster.bootstrap


@contextmanager
def _prometheus(folder: Path, cpcmon: list[Process], hook: int) -> Iterator[None]:
    """Run Prometheus and Alertmanager with the shipped files on other ports, and the rules of the configuration."""
    command = [sys.executable, "-m", "monitor", "rules", "--config.file", str(cpcmon[0].config)]
    subprocess.run([*command, "--output", str(folder / "cpcmon.rules.yml")], check=True)
    own, targets = free_port(), ", ".join(json.dumps(one.url.removeprefix("http://")) for one in cpcmon)
    with alertmanager(folder, hook, "30s") as manager:
        text = (ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text()
        text = text.replace('"localhost:9877"', targets).replace("localhost:9093", f"127.0.0.1:{manager}")
        (folder / "prometheus.yml").write_text(text.replace("localhost:9090", f"127.0.0.1:{own}"))
        with running(
            f"http://127.0.0.1:{own}/-/ready", folder / "prometheus.log", real_server("prometheus"),
            "--config.file=prometheus.yml", "--storage.tsdb.path=prometheus", f"--web.listen-address=127.0.0.1:{own}",
        ):  # fmt: skip
            yield


def _collected(cpcmon: Process) -> None:
    """Wait until the scanner has the baseline that evidence needs."""
    until = time.monotonic() + _LIMIT_SECONDS
    wanted = f'cpcmon_change_evidence{{direction="down",model="density",segment="{SHIFTED}"}}'
    while wanted not in cpcmon.metrics():
        if time.monotonic() > until:
            raise SystemExit(f"no baseline within {_LIMIT_SECONDS:.0f} seconds:\n{cpcmon.log}")
        time.sleep(2.0)


def _arrived(receiver: Receiver, since: float) -> Notification:
    """Wait for the page about the replaced scanner."""
    while time.monotonic() - since < _LIMIT_SECONDS:
        for one in receiver.notifications:
            if one.receiver == "on-call" and one.labels.get("segment") == SHIFTED:
                return one
        time.sleep(0.2)
    raise SystemExit(f"no notification within {_LIMIT_SECONDS:.0f} seconds: {receiver.notifications}")


def _measure(kind: str, folder: Path) -> None:
    demo = Folder(folder / "demo")
    with demo.held():
        demo.known_reference()
        demo.make_reference(lambda *_: None)
    demo.reference.rename(folder / "density.ref")
    with ExitStack() as stack:
        send, bootstrap = stack.enter_context((_directory if kind == "directory" else _kafka)(folder))
        stream = stack.enter_context(closing(_Stream(send)))
        stream.fill()
        cpcmon = []
        for name in ("a",) if kind == "directory" else ("a", "b"):
            config = folder / name / "config.yaml"
            config.parent.mkdir()
            source = _SOURCES[kind].format(folder=folder, bootstrap=bootstrap)
            config.write_text(_CONFIG.format(source=source, folder=folder))
            cpcmon.append(stack.enter_context(running_cpcmon(config)))
        receiver = stack.enter_context(closing(Receiver()))
        stack.enter_context(_prometheus(folder, cpcmon, receiver.port))
        for one in cpcmon:
            _collected(one)
        early = [one.short for one in receiver.notifications if one.receiver == "on-call"]
        print(f"{kind}: the scanner is replaced; pages until now: {early or 'none'}", flush=True)
        stream.drop()
        began = time.monotonic()
        page = _arrived(receiver, began)
        print(f"{kind}: from the drop to the notification {time.monotonic() - began:.0f} seconds\n")
        for name, value in page.annotations.items():
            print(f"{name}: {value}")


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=_SOURCES)
    kind = parser.parse_args().kind
    with tempfile.TemporaryDirectory(prefix="cpcmon-bench-", dir=os.environ.get("BENCH_DIR", ".")) as folder:
        _measure(kind, Path(folder).absolute())


if __name__ == "__main__":
    main()
