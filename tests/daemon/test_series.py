"""The number of series that `cpcmon check-config` prints, against those of a real page."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from monitor.sinks.expected_series import SAMPLE_LIMIT
from tests.conftest import ROOT, Ran
from tests.daemon.process import CLASSES, running, write_records, write_reference

CONFIG = """
storage: {{path: {folder}/state}}
sources:
  - {{name: results, type: directory, path: inbox, poll: 0.2s}}
{sources}
models:
  - name: density
    reference: density.ref
    window: {{records: 200}}
    minimum_records: 100
    evaluate: {{every: 1s}}
    baseline: reference
    segment_by: [site]
    segments: {{limit: {limit}}}
    {more}
metrics: {{segments: {segments}}}
"""
LABELS = "  - {name: labels, type: directory, path: labels, carries: labels, poll: 0.2s}"
MORE = """audit: {share: 0.5}
    performance: [sensitivity, f1, class_mix]
    alerts:
      - {name: low, below: 0.5}
      - {name: conformal, below: 0.5, estimator: cpc_acc, segments: ["site=*"]}
      - {name: missed, metric: sensitivity, class: cat, below: 0.5, segments: [all]}
      - {name: refused, type: degraded_input}"""
SITES = ["a", "b", "c", "d", "e", "f"]


def _printed(cpcmon: Callable[..., Ran], config: Path) -> int:
    found = re.search(r"the metrics page: about ([\d,]+) series", cpcmon("check-config", config).out)
    assert found
    return int(found[1].replace(",", ""))


@pytest.mark.parametrize(
    ("segments", "sources", "more"), [("headline", "", ""), ("headline", LABELS, MORE), ("all", LABELS, MORE)]
)
def test_the_number_of_series_is_about_that_of_a_scrape(
    cpcmon: Callable[..., Ran], tmp_path: Path, segments: str, sources: str, more: str
) -> None:
    """It is a little more: here no block is judged yet, no change has begun, and times of creation are left out."""
    for folder in ("inbox", "labels"):
        (tmp_path / folder).mkdir()
    _, vectors, labels = write_reference(tmp_path)
    write_records(
        tmp_path / "inbox" / "records.jsonl",
        vectors,
        model="density",
        version="2.1",
        site=SITES,
        id=[*map(str, range(600))],
    )
    rows = [{"model": "density", "id": str(row), "label": CLASSES[label]} for row, label in enumerate(labels)]
    (tmp_path / "labels" / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = tmp_path / "config.yaml"
    text = CONFIG.format(folder=tmp_path, limit=len(SITES), segments=segments, sources=sources, more=more)
    config.write_text(text)
    printed = _printed(cpcmon, config)
    with running(config) as daemon:
        last = ['cpcmon_change_evidence{direction="down",model="density",segment="site=f"}']
        last += ['cpcmon_audited_accuracy_ratio{model="density",scope="window",segment="site=f"}'] if sources else []
        count = len(daemon.wait_until(lambda page: all(one in page for one in last), "what comes last"))
    assert 0.8 * printed <= count <= printed


def test_more_series_than_the_shipped_limit_are_a_warning(cpcmon: Callable[..., Ran], tmp_path: Path) -> None:
    for file in ("kubernetes/base/servicemonitor.yaml", "helm/cpcmon/values.yaml"):
        assert f"sampleLimit: {SAMPLE_LIMIT}\n" in (ROOT / "deploy" / file).read_text()
    write_reference(tmp_path)
    config = tmp_path / "config.yaml"
    document = yaml.safe_load(
        CONFIG.format(folder=tmp_path, limit=4000, segments="all", sources="", more="remember_ids: 1000")
    )
    document["limits"] = {"segments": 4000, "window_bytes": "4GiB"}
    config.write_text(yaml.safe_dump(document))
    assert "warning: that is more than sampleLimit, 500,000, of the" in cpcmon("check-config", config).out
    document["metrics"]["segments"] = "headline"
    config.write_text(yaml.safe_dump(document))
    assert "sampleLimit" not in cpcmon("check-config", config).out
