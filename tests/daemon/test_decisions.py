"""Devices that do not decide for the most probable class, in the real process: metrics, page, API, and a reload."""

import json
from pathlib import Path

import numpy as np
import pytest

from monitor.core.estimate import Estimate
from monitor.reference.reference import Reference
from tests.daemon.process import running, write_records
from tests.strategies import synthetic

pytestmark = pytest.mark.slow

CLASSES = ("healthy", "cancer")
CONFIG = """\
storage: {path: state}
sources:
  - name: results
    type: directory
    path: inbox
    poll: 0.2s
    fields: {predicted: called}
models:
  - {name: screening, reference: screening.ref, decide: cancer=0.13, evaluate: {every: 1s}}
  - {name: triage, reference: triage.ref, decide: field, evaluate: {every: 1s}}
"""


def test_a_threshold_and_decisions_of_records(tmp_path: Path) -> None:
    """Of 600 records, 100 are referred to a person; the configuration may not change the threshold of a reference."""
    vectors, labels = synthetic(600, 2, seed=1)
    called = (vectors[:, 1] >= np.float32(0.13)).astype(np.int64)
    for name, decide in (("screening", "cancer=0.13"), ("triage", called)):
        reference = Reference.calibrate(vectors, labels, model=name, classes=CLASSES, decide=decide)
        reference.save(tmp_path / f"{name}.ref")
    inbox, file = tmp_path / "inbox", tmp_path / "config.yaml"
    inbox.mkdir()
    file.write_text(CONFIG)
    window, _ = synthetic(600, 2, seed=2)
    decided = (window[:, 1] >= np.float32(0.13)).astype(np.int64)
    named = [None if row % 6 == 0 else CLASSES[one] for row, one in enumerate(decided.tolist())]
    for name in ("screening", "triage"):
        write_records(inbox / f"{name}.jsonl", window, model=name, called=named)
    kept = np.array([one is not None for one in named])
    with running(file, "--web.enable-lifecycle") as process:
        for name, rows in (("screening", np.full(600, fill_value=True)), ("triage", kept)):
            records = f'cpcmon_window_records{{model="{name}",segment="all"}}'
            page = process.wait_for(records, float(rows.sum()))
            share = f'cpcmon_predicted_class_ratio{{class="cancer",model="{name}",segment="all"}}'
            assert page[share] == pytest.approx(decided[rows].mean())
            reference = Reference.load(tmp_path / f"{name}.ref")
            wanted = reference.calibration.estimate(window[rows], decided=decided[rows])["doc_ts"]
            assert isinstance(wanted, Estimate)
            found = f'cpcmon_estimated_accuracy_ratio{{estimator="doc_ts",model="{name}",segment="all"}}'
            assert page[found] == pytest.approx(wanted.accuracy, abs=1e-9)
        assert page['cpcmon_records_referred_total{model="triage"}'] == 100
        assert page['cpcmon_records_referred_total{model="screening"}'] == 0
        assert page['cpcmon_records_argmax_mismatch_total{model="screening"}'] == 0
        assert "cancer at 0.13 or above" in process.ask("/model?name=screening")[1]
        text = process.ask("/model?name=triage")[1]
        assert "what each record says" in text
        assert "Referred to a person, in all" in text
        assert "cancer at 0.13 or above" in process.ask("/reference?name=screening")[1]
        document = json.loads(process.ask("/api/v1/status")[1])
        assert [one["reference"]["decides"] for one in document["models"]] == ["cancer=0.13", "field"]
        assert [one["input"]["referred"] for one in document["models"]] == [None, 100]
        file.write_text(CONFIG.replace("cancer=0.13", "cancer=0.2"))
        status, problem = process.ask("/-/reload", "POST")
        assert status == 500
        assert "run `cpcmon calibrate` again with --decide-at cancer=0.2, or set decide to cancer=0.13" in problem
