"""Two real daemons for a dashboard: one with models in every state, and a healthy one."""

import json
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from monitor.core.estimate import HEADLINE, Estimate
from monitor.reference.reference import Reference
from tests.daemon.process import CLASSES, Process, running, write_records
from tests.strategies import Singles, synthetic

SITES = [f"S{number:02}" for number in range(12)]
"""More than the heat map shows."""

MODELS = ("density", "poor", "unsure", "free", "checked", "empty", "quiet")
"""Of the daemon with models in every state."""

HEALTHY: Singles = synthetic(1200, 3, seed=5, sharpness=2.6)[0]
UNSURE: Singles = synthetic(600, 3, seed=7, sharpness=1.6)[0]
POOR: Singles = synthetic(1200, 3, seed=6, sharpness=0.6)[0]

_SOURCES = """\
storage: {path: state}
links: {runbooks: "https://site.example/runbooks", page: "https://site.example/cpcmon"}
sources:
  - {name: results, type: directory, path: inbox, poll: 0.2s}
%(labels)smodels:
"""
_MODEL = """\
  - name: %(name)s
    version: "2.1"
    reference: %(reference)s
    window: {records: %(window)s}
    segment_by: %(fields)s
    evaluate: {every: 1s}
    minimum_records: 20
    baseline_records: 40
    alerts: [%(alerts)s]
    performance: %(performance)s
"""
EVERYTHING = "[sensitivity, specificity, ppv, npv, f1, class_mix]"


_AUDIT = "    audit: {share: 0.5}\n"
_LABELS = "  - {name: pathology, type: directory, path: labels, poll: 0.2s, carries: labels, models: [checked]}\n"


def _model(
    name: str,
    *alerts: str,
    fields: str = "[]",
    reference: str = "density.ref",
    performance: str = "[]",
    window: int = 1000,
) -> str:
    values = {"name": name, "fields": fields, "reference": reference, "performance": performance, "window": window}
    return _MODEL % {**values, "alerts": ", ".join(alerts)}


@dataclass
class Sick:
    """A daemon with a model in each state, and a steady feed."""

    folder: Path
    process: Process
    sent: int = 0

    def send_more(self) -> None:
        """Send more records: an alert needs new ones to fire."""
        some = POOR[self.sent % 1000 :][:10]
        write_records(self.folder / "inbox" / "more.jsonl", some, model="poor")
        write_records(self.folder / "inbox" / "more.jsonl", HEALTHY[:5], model="density", site=SITES)
        write_records(self.folder / "inbox" / "more.jsonl", [[0.9, 0.9, 0.9]], model="density")
        self.sent += 10


def start_sick(stack: ExitStack, folder: Path) -> Sick:
    """Start the daemon with models in every state."""
    references = {name: _reference(folder, name) for name in MODELS}
    of_unsure = references["unsure"].calibration
    found = of_unsure.estimate(UNSURE)[HEADLINE]
    assert isinstance(found, Estimate)
    assert found.interval is not None
    between = (found.accuracy + found.interval.upper) / 2
    assert found.accuracy < between < min(found.interval.upper, of_unsure.accuracy)
    quick = "for: 0s, new_records: 0.01"
    models = [
        _model(
            "density",
            "{name: accuracy_low, below: 0.5}",
            "{name: accuracy_high, above: 0.999}",
            # All sites together are less confident than the reference.
            "{name: dropped, type: change, false_alarms: 1 per 1h, segments: [all]}",
            *(
                f"{{name: {one}_low, metric: {one}, below: 0.2}}"
                for one in ("sensitivity", "specificity", "ppv", "npv", "f1")
            ),
            fields="[[site]]",
            performance=EVERYTHING,
        ),
        _model(
            "poor", f"{{name: accuracy_low, drop: 0, on: value, severity: critical, {quick}}}", reference="poor.ref"
        ),
        _model(
            "unsure",
            f"{{name: accuracy_low, below: {between!r}}}",
            "{name: soon_low, below: 0.999, on: value, for: 1h}",
            reference="unsure.ref",
        )
        + "    default_alerts: []\n",
        _model("quiet", "{name: quiet, type: silent, after: 1s}", reference="quiet.ref"),
        _model("free", reference="free.ref"),
        _model("checked", "{name: accuracy_low, below: 0.1}", reference="checked.ref", window=100) + _AUDIT,
        _model("empty", "{name: accuracy_low, below: 0.5}", reference="empty.ref"),
    ]
    inbox = _write(folder, *models, labels=_LABELS)
    # Each site is a little less confident than the previous one, for a clear order.
    for number, site in enumerate(SITES):
        some = synthetic(60, 3, seed=100 + number, sharpness=2.6 - 0.15 * number)[0]
        write_records(inbox / "density.jsonl", some, model="density", site=site)
    write_records(inbox / "poor.jsonl", POOR[:400], model="poor")
    write_records(inbox / "unsure.jsonl", UNSURE, model="unsure")
    write_records(inbox / "free.jsonl", HEALTHY[:300], model="free")
    _write_labelled(folder)
    return Sick(folder, stack.enter_context(running(folder / "config.yaml")))


def start_well(stack: ExitStack, folder: Path) -> Process:
    """Start a healthy daemon without segments; the other daemon has two models of the same names that are not healthy."""
    names = ("calm", "poor", "empty")
    for name in names:
        _reference(folder, name)
    alerts = "{name: accuracy_low, drop: 0.2}", "{name: dropped, type: change}"
    inbox = _write(folder, *(_model(name, *alerts, reference=f"{name}.ref") for name in names))
    for name in names:
        write_records(inbox / f"{name}.jsonl", HEALTHY[:600], model=name)
    return stack.enter_context(running(folder / "config.yaml"))


def rules_of(folder: Path) -> str:
    """Return the output of `cpcmon rules`."""
    command = [sys.executable, "-m", "monitor", "rules", "--config.file", str(folder / "config.yaml")]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@cache
def _calibrated() -> Reference:
    vectors, labels = synthetic(600, 3, seed=1, sharpness=2.6)
    return Reference.calibrate(vectors, np.asarray(labels), model="density", version="2.1", classes=CLASSES)


def _reference(folder: Path, name: str) -> Reference:
    folder.mkdir(exist_ok=True)
    found = replace(_calibrated(), model=name)
    found.save(folder / f"{name}.ref")
    return found


def _write_labelled(folder: Path) -> None:
    """Write predictions that are more often right than not, and their labels."""
    vectors, labels = synthetic(300, 3, seed=11, sharpness=2.6)
    ids = [f"study-{number}" for number in range(len(vectors))]
    write_records(folder / "inbox" / "checked.jsonl", vectors, model="checked", id=ids)
    (folder / "labels").mkdir()
    lines = [json.dumps({"id": one, "label": CLASSES[int(label)]}) for one, label in zip(ids, labels, strict=True)]
    (folder / "labels" / "reports.jsonl").write_text("\n".join(lines) + "\n")


def _write(folder: Path, *models: str, labels: str = "") -> Path:
    (folder / "config.yaml").write_text(_SOURCES % {"labels": labels} + "".join(models))
    (folder / "inbox").mkdir()
    return folder / "inbox"
