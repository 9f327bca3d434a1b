"""The feed of the compose file: writes outputs of the example classifier to a Kafka topic until it is stopped.

`prepare` writes the example data and its reference; `send` sends outputs for two sites in turn. After a while site B gets
another scanner and an older population, and its accuracy drops.
"""  # noqa: INP001 - a script, no package

import argparse
import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path

from kafka import KafkaProducer
from kafka.errors import KafkaError

from monitor.cli import main
from monitor.demo.example_data import CLASSES, write_example


def prepare(directory: Path) -> int:
    """Write the example data, and calibrate its reference."""
    files = write_example(directory)
    words = ["calibrate", "--input", str(files["validation_labelled"]), "--model", "density", "--model-version", "2.1"]
    return main([*words, "--classes", ",".join(CLASSES), "--output", str(directory / "density.ref")])


def messages(directory: Path, shift_at: int) -> Iterator[tuple[str, bytes]]:
    """Yield keys and messages for ever, one per site in turn; from message `shift_at` on, site B has shifted data."""
    usual, shifted = (
        [json.loads(line)["probs"] for line in (directory / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        for name in ("site_a", "site_b")
    )
    for number in itertools.count():
        for site, outputs in (("A", usual), ("B", usual if number < shift_at else shifted)):
            record = {"model": "density", "version": "2.1", "site": site, "time": time.time()}
            yield site, json.dumps({**record, "probs": outputs[number % len(outputs)]}).encode()


def send(options: argparse.Namespace) -> int:
    """Send until stopped, or up to the requested number."""
    producer = _producer(options.brokers)
    shift_at = round(options.shift_after * options.rate)
    for sent, (key, message) in enumerate(messages(options.directory, shift_at), 1):
        producer.send(options.topic, value=message, key=key.encode())
        if options.count and sent >= options.count:
            break
        time.sleep(0.5 / options.rate)
    producer.flush(60)
    producer.close()
    return 0


def _producer(brokers: str) -> KafkaProducer:
    """Connect, and wait for a broker that is still starting."""
    for _ in range(60):
        try:
            return KafkaProducer(bootstrap_servers=brokers.split(","), linger_ms=100)
        except KafkaError:
            time.sleep(2)
    raise SystemExit(f"--brokers: expected a broker at {brokers} to answer within two minutes, found none")


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["prepare", "send"])
    parser.add_argument("--directory", type=Path, required=True, help="where the example lies")
    parser.add_argument("--brokers", default="localhost:9092", help="host:port, with commas between")
    parser.add_argument("--topic", default="predictions")
    parser.add_argument("--rate", type=float, default=10.0, help="records a second of each site")
    parser.add_argument("--shift-after", type=float, default=600.0, help="seconds until site B changes")
    parser.add_argument("--count", type=int, default=0, help="stop after so many records; 0 for never")
    return parser.parse_args()


if __name__ == "__main__":
    asked = arguments()
    raise SystemExit(prepare(asked.directory) if asked.what == "prepare" else send(asked))
