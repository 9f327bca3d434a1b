"""Adds the source of `docs/extending.md` to a copy of the package and runs it."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from monitor.reference.reference import Reference
from tests.conftest import ROOT
from tests.daemon.process import running
from tests.docs.markdown import PAGES
from tests.strategies import synthetic

PAGE = PAGES["docs/extending.md"].text
_NEW = re.compile(r"^`(monitor/[\w/]+\.py)`:\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_STEP = re.compile(r"`(monitor/[\w/]+\.py)`|^```diff\n(.*?)^```", re.MULTILINE | re.DOTALL)
_RECORDS = 300


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the package with the changes of the page."""
    folder = tmp_path / "tree"
    shutil.copytree(ROOT / "monitor", folder / "monitor", ignore=shutil.ignore_patterns("__pycache__"))
    for path, text in _NEW.findall(PAGE):
        assert not (folder / path).exists(), path
        (folder / path).write_text(text, encoding="utf-8")
    for path, change in _changes():
        file = folder / path
        before = "".join(line[1:] for line in change if line[0] in " -")
        after = "".join(line[1:] for line in change if line[0] in " +")
        text = file.read_text(encoding="utf-8")
        assert text.count(before) == 1, f"{path} has no such place, or several:\n{before}"
        file.write_text(text.replace(before, after), encoding="utf-8")
    return folder


def _changes() -> list[tuple[str, list[str]]]:
    """Return each change with the file named before it."""
    found, path = [], ""
    for named, change in _STEP.findall(PAGE.partition("### 2. Registration")[2].partition("\n### ")[0]):
        path = named or path
        if change:
            found.append((path, change.splitlines(keepends=True)))
    return found


def test_the_test_on_the_page_passes(tree: Path, tmp_path: Path) -> None:
    """In a process that imports the copy."""
    (test,) = re.findall(r"^```python\n(def test_.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    script = "\n".join([
        "from pathlib import Path",
        "from monitor.records.decoder import RecordDecoder",
        "from monitor.records.record_schema import ModelFormat",
        "from monitor.sources.journal import JournalOptions, JournalSource",
        "from monitor.testing.source_checks import check_source",
        test,
        f"test_the_journal_keeps_the_contract(Path({str(tmp_path)!r}))",
        "import monitor; print(monitor.__file__)",
    ])  # fmt: skip
    ran = subprocess.run([sys.executable, "-c", script], cwd=tree, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == str(tree / "monitor" / "__init__.py")


@pytest.mark.slow
def test_the_daemon_reads_from_the_source(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through settings, metrics, events, the API and a restart."""
    probabilities, labels = synthetic(_RECORDS, 3, seed=1)
    Reference.calibrate(probabilities, labels, model="density").save(tmp_path / "density.ref")
    lines = [json.dumps({"probs": [float(p) for p in row]}) + "\n" for row in probabilities]
    journal = tmp_path / "journal.jsonl"
    journal.write_text("".join(lines) + "{}\n")
    config = tmp_path / "config.yaml"
    config.write_text(
        "storage: {path: state}\n"
        "sources: [{name: lab, type: journal, path: journal.jsonl}]\n"
        "models: [{name: density, reference: density.ref, evaluate: {every: 1s}}]\n"
    )
    monkeypatch.chdir(tree)
    check = [sys.executable, "-m", "monitor", "check-config", str(config)]
    checked = subprocess.run(check, cwd=tree, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert f"source lab: journal {journal}\n" in checked.stdout
    records = 'cpcmon_records_total{model="density",source="lab"}'
    read = 'cpcmon_source_events_total{event="bytes_read",source="lab"}'
    with running(config) as process:
        process.wait_for(records, float(_RECORDS))
        process.wait_for(read, float(journal.stat().st_size))
        process.wait_for('cpcmon_records_rejected_total{reason="missing_field",source="lab"}', 1.0)
        process.wait_for('cpcmon_source_lag_bytes{source="lab"}', 0.0)
        process.wait_for('cpcmon_estimate_valid{model="density",segment="all"}', 1.0)
        (source,) = json.loads(process.ask("/api/v1/status")[1])["sources"]
        assert (source["type"], source["ready"], source["records"], source["rejected"]) == (
            "journal",
            True,
            _RECORDS,
            1,
        )
        assert process.stop() == 0
    with journal.open("a") as file:
        file.writelines(lines[:7])
    with running(config) as process:
        process.wait_for(records, float(_RECORDS + 7))
        process.wait_for(read, float(journal.stat().st_size))
        assert process.stop() == 0
    config.write_text(config.read_text().replace("path: journal.jsonl", "\n  path: 3.5, pattern: x"))
    rejected = subprocess.run(check, cwd=tree, capture_output=True, text=True, check=False)
    assert rejected.returncode == 2
    assert "config.yaml:3: sources[0].path: expected the path of a journal, found " in rejected.stderr
    assert "config.yaml:3: sources[0]: expected " in rejected.stderr
    assert "'pattern'" in rejected.stderr
