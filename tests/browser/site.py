"""A real daemon with segments, rejected records, secrets, and an alert that fires on demand."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from monitor.reference.reference import Reference
from tests.daemon.process import LIMIT, Process, one, running, write_records
from tests.strategies import Integers, Singles, synthetic

CLASSES = ("A fatty", "B scattered", "C dense")
HOSPITALS = ["North", "North", "South", "East"]
SCANNERS = ["N1", "N2", "S1", "E1"]


@dataclass(frozen=True)
class Feed:
    """Outputs of a model, with their labels."""

    vectors: Singles
    labels: Integers


HEALTHY = Feed(*synthetic(4000, 3, seed=5, sharpness=2.6))
POOR = Feed(*synthetic(4000, 3, seed=6, sharpness=1.6))
FIRST = 240
"""Records at the start."""
WINDOW = 900
"""The size of a window."""
SECRETS = ("ZZSECRET-webhook", "ZZSECRET-heartbeat", "ZZSECRET-user", "ZZSECRET-refused", "ZZSECRET-patient")
"""Texts that no response may contain: tokens in addresses, record contents, file names."""

_CONFIG = """\
storage: {{path: state}}
sources:
  - {{name: results, type: directory, path: inbox, poll: 0.2s}}
  - {{name: pathology, type: directory, path: labels, poll: 0.2s, carries: labels}}
models:
  - name: density
    version: "2.1"
    reference: density.ref
    window: {{records: {window}}}
    segment_by: [[site], [site, scanner]]
    evaluate: {{every: 1s}}
    minimum_records: 30
    alerts:
      - {{name: accuracy_low, below: 0.7, on: value, for: 0s, new_records: 0.01, severity: critical, segments: [all]}}
      - {{name: accuracy_drop, type: change}}
  - name: fracture
    reference: fracture.ref
    window: {{records: {window}}}
    evaluate: {{every: 1s}}
    minimum_records: 30
    alerts: [{{name: silent, after: 2h}}]
  - name: nodule
    reference: nodule.ref
    window: {{records: {window}}}
    segment_by: [[site]]
    evaluate: {{every: 1s}}
    minimum_records: 30
    audit: {{share: 0.3}}
  - name: quiet
    evaluate: {{every: 1s}}
notify:
  webhook: {{url: "http://127.0.0.1:9/ZZSECRET-webhook?user=ZZSECRET-user", allow_http: true}}
  heartbeat: {{url_file: secrets/heartbeat, allow_http: true}}
"""


@dataclass
class RunningSite:
    """A running daemon and its folder."""

    folder: Path
    process: Process
    sent: dict[str, int] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The address of its pages."""
        return self.process.url

    def drop(self, feed: Feed, count: int, model: str = "density") -> None:
        """Send more records, and wait until they are counted."""
        start = self.sent.get(model, 0)
        some = slice(start % 2000, start % 2000 + count)
        self.sent[model] = start + count
        name = f"{model}-ZZSECRET-patient.jsonl"
        write_records(self.folder / "inbox" / name, feed.vectors[some], model=model, site=HOSPITALS, scanner=SCANNERS)
        self.wait_for("cpcmon_window_records", min(start + count, WINDOW), model=model, segment="all")

    def label(self, right: float) -> None:
        """Send a window of records with ids, then the labels of most: so many of the decisions were right."""
        names = [f"ZZSECRET-patient-{number}" for number in range(WINDOW)]
        decided = HEALTHY.vectors[:WINDOW].argmax(axis=1).tolist()
        write_records(
            self.folder / "inbox" / "nodule.jsonl", HEALTHY.vectors[:WINDOW], model="nodule", id=names, site=HOSPITALS
        )
        self.wait_for("cpcmon_window_records", WINDOW, model="nodule", segment="all")
        lines = [
            {"model": "nodule", "id": name, "label": CLASSES[one if number % 10 < 10 * right else (one + 1) % 3]}
            for number, (name, one) in enumerate(zip(names, decided, strict=True))
            if number % 70
        ]
        (self.folder / "labels" / "nodule.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
        self.wait_for("cpcmon_estimates_wrong", 1.0, model="nodule", segment="all")

    def wait_for(self, name: str, value: float, **labels: str) -> None:
        """Wait until a series has a value."""
        deadline = time.monotonic() + LIMIT
        while (found := one(self.process.metrics(), name, **labels)) != value:
            assert time.monotonic() < deadline, f"{name} of {labels} is {found}, not {value}:\n{self.process.log}"
            time.sleep(0.1)

    def make_alert_fire(self) -> None:
        """Send poor records until the alert fires."""
        self.drop(POOR, WINDOW)
        # The alert needs new records after the first low evaluation.
        firing = {"model": "density", "alert": "accuracy_low", "segment": "all"}
        deadline = time.monotonic() + LIMIT
        while one(self.process.metrics(), "cpcmon_alert_firing", **firing) != 1.0:
            assert time.monotonic() < deadline, self.process.log
            self.drop(POOR, 24)
            time.sleep(0.5)


@contextmanager
def running_site(folder: Path, *words: str) -> Iterator[RunningSite]:
    """Run a daemon in a new folder, with good records and a few rejected ones."""
    prepare(folder)
    with running(folder / "config.yaml", *words) as process:
        found = RunningSite(folder, process)
        found.drop(HEALTHY, FIRST)
        found.drop(HEALTHY, 200, model="fracture")
        found.label(0.5)
        yield found


def prepare(folder: Path) -> None:
    """Write references, secrets, a configuration and records that will be rejected."""
    for name in ("inbox", "labels", "secrets"):
        (folder / name).mkdir(parents=True)
    for name in ("density", "fracture", "nodule"):
        replace(reference(), model=name).save(folder / f"{name}.ref")
    (folder / "secrets" / "heartbeat").write_text("http://127.0.0.1:9/ZZSECRET-heartbeat\n", encoding="utf-8")
    (folder / "secrets" / "heartbeat").chmod(0o600)
    (folder / "config.yaml").write_text(_CONFIG.format(window=WINDOW), encoding="utf-8")
    (folder / "inbox" / "invalid-ZZSECRET-patient.jsonl").write_text(_rejected(), encoding="utf-8")


@cache
def reference() -> Reference:
    """Return a reference of the model `density`."""
    vectors, labels = synthetic(300, 3, seed=7, sharpness=2.6)
    return Reference.calibrate(vectors, labels, model="density", version="2.1", classes=CLASSES)


def _rejected() -> str:
    good = {"probs": [0.2, 0.3, 0.5], "model": "density"}
    invalid: list[object] = [
        {**good, "probs": [0.2, "ZZSECRET-refused", 0.5]},
        {**good, "probs": [0.2, 0.8]},
        {**good, "probs": [2.0, -1.0, 0.0]},
        {**good, "model": "ZZSECRET-refused"},
        {"patient": "ZZSECRET-refused"},
    ]
    return "".join(f"{json.dumps(one)}\n" for one in invalid) + '{"patient": "ZZSECRET-refused"\n'
