"""A process that produces continuously at a rate, and writes what was acknowledged to a file."""

import argparse
import base64
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from confluent_kafka import KafkaError, Message, Producer

from tests.kafka.producing import Truth

_ROOT = Path(__file__).resolve().parents[2]
_TICK_SECONDS = 0.02
_STOP_SECONDS = 120.0


def example(number: int) -> bytes:
    """Return the payload of a number, always the same."""
    rng = random.Random(number)  # noqa: S311, no secret
    weights = [rng.random() for _ in range(3)]
    return json.dumps({"id": f"r{number}", "probs": [weight / sum(weights) for weight in weights]}).encode()


class EndlessProducer:
    """Writes payload 0, 1, 2 … to the partitions in turn within its context.

    Idempotent and without a delivery timeout: every payload is written once even if brokers fail. `payloads` names the
    function that returns them, as `module:function`.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        rate: float,
        folder: Path,
        payloads: str = "tests.kafka.endless:example",
    ) -> None:
        self.path = folder / "truth.txt"
        self._log = folder / "endless.log"
        arguments = {
            "bootstrap": bootstrap,
            "topic": topic,
            "partitions": partitions,
            "rate": rate,
            "payloads": payloads,
        }
        self._command = [sys.executable, "-m", "tests.kafka.endless", "--truth", str(self.path)]
        self._command += [f"--{name}={value}" for name, value in arguments.items()]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        """Start, and wait until the first records are acknowledged."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, cwd=_ROOT, stdout=log, stderr=log)
        deadline = time.monotonic() + _STOP_SECONDS
        while self.written() == 0:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                raise RuntimeError(f"the endless producer wrote nothing: {self._log.read_text()[-2000:]}")
            time.sleep(0.05)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Kill the process."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def written(self) -> int:
        """Return the size of the file of acknowledged records."""
        return self.path.stat().st_size if self.path.exists() else 0

    def stop(self) -> Truth:
        """Stop, wait until everything is acknowledged, and return it."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        if self._process.wait(_STOP_SECONDS) != 0:
            raise RuntimeError(f"the endless producer failed: {self._log.read_text()[-2000:]}")
        return self.truth()

    def truth(self) -> Truth:
        """Return the acknowledged records."""
        found: Truth = defaultdict(dict)
        for line in self.path.read_text().splitlines(keepends=True):
            # The last line of a running producer may be incomplete.
            if line.endswith("\n"):
                partition, offset, payload = line.split()
                assert int(offset) not in found[int(partition)]
                found[int(partition)][int(offset)] = base64.b64decode(payload)
        return found


def _produce(arguments: argparse.Namespace, truth: TextIO) -> None:
    module, _, function = arguments.payloads.partition(":")
    payload_of = getattr(importlib.import_module(module), function)
    stopping = False
    next_offsets = dict.fromkeys(range(arguments.partitions), 0)

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    def delivered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            sys.exit(f"a record was not delivered: {error}")
        value, partition, offset = message.value(), message.partition(), message.offset()
        assert isinstance(value, bytes)
        assert partition is not None
        # A batch that was resent after a lost acknowledgement has no offsets. This is the only producer and it keeps the
        # order, so the record follows the previous one.
        offset = next_offsets[partition] if offset is None else offset
        next_offsets[partition] = offset + 1
        truth.write(f"{partition} {offset} {base64.b64encode(value).decode()}\n")

    signal.signal(signal.SIGTERM, stop)
    # Retries without an end: brokers fail over.
    settings = {"message.timeout.ms": 0, "enable.idempotence": True, "linger.ms": 50, "log_level": 0}
    producer = Producer({"bootstrap.servers": arguments.bootstrap, **settings})
    started, sent, parent = time.monotonic(), 0, os.getppid()
    # A new parent means that the test was killed.
    while not stopping and os.getppid() == parent:
        due = int((time.monotonic() - started) * arguments.rate)
        while sent < due and not stopping:
            try:
                producer.produce(
                    arguments.topic, payload_of(sent), partition=sent % arguments.partitions, on_delivery=delivered
                )
            except BufferError:
                break
            sent += 1
        producer.poll(_TICK_SECONDS)
        truth.flush()
    left = producer.flush(_STOP_SECONDS / 2)
    if left:
        sys.exit(f"{left} records were not delivered before the end")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name, kind in {"bootstrap": str, "topic": str, "payloads": str, "partitions": int, "rate": float}.items():
        parser.add_argument(f"--{name}", type=kind, required=True)
    parser.add_argument("--truth", type=Path, required=True)
    given = parser.parse_args()
    with given.truth.open("w") as file:
        _produce(given, file)
