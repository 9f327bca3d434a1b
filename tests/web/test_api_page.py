"""`docs/api.md` and `docs/realised.md` match the code."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from monitor.core.report import Realised
from monitor.daemon.realised_file import RealisedFiles
from monitor.web import api
from monitor.web.site import Site
from tests.conftest import ROOT
from tests.web.sample_reports import three_models
from tests.web.test_api import site_with_performance

API = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
REALISED = (ROOT / "docs" / "realised.md").read_text(encoding="utf-8")


def _keys(title: str) -> set[str]:
    (table,) = re.findall(rf"^\| of {title} \| what \|\n\|---\|---\|\n((?:\|.*\n)+)", API, re.MULTILINE)
    return {key for row in table.splitlines() for key in re.findall(r"`(\w+)`", row.split("|")[1])}


def _document(found: bytes | None) -> Any:
    assert found is not None
    return json.loads(found)


def test_keys_match_the_documentation(site: Site) -> None:
    configuration = _document(api.configuration_document(site, {}))
    reference = _document(api.reference_document(site, {"model": "density"}))
    realised = _document(api.realised_document(site, {"model": next(iter(three_models()))}))
    beyond = _document(api.performance_document(site_with_performance(), {"model": "density", "segment": "site=A"}))
    for title, one in {
        "a performance": beyond,
        "a metric": beyond["performance"][0],
        "a class in the mix": beyond["class_mix"][0],
        "the configuration": configuration,
        "a setting": configuration["settings"][0],
        "a reference": reference,
        "a class": reference["classes"][0],
        "a bin": reference["reliability"][0],
        "the file": realised,
        "a realised accuracy": realised["realised"][0],
    }.items():
        assert _keys(title) == set(one), title
    (row,) = re.findall(r"^\| `warnings` \|(.*)$", API, re.MULTILINE)
    assert set(reference["warnings"][0]) == set(re.findall(r"`(\w+)`", row))


def test_the_example_lines_are_accepted(tmp_path: Path) -> None:
    (block,) = re.findall(r"```json\n(.*?)```", REALISED, re.DOTALL)
    (tmp_path / "audit.jsonl").write_text(block)
    read = RealisedFiles().read(tmp_path / "audit.jsonl")
    assert ([one.segment for one in read.accuracies], read.remark) == (["all", "site=A"], None)


def test_the_example_program_writes_accepted_lines(tmp_path: Path) -> None:
    """For three cases at two sites; a second week is appended."""
    (program,) = re.findall(r"```python\n(.*?)```", REALISED, re.DOTALL)
    (command,) = re.findall(r"```sh\n(python3 .*?)\n```", REALISED, re.DOTALL)
    (tmp_path / "add_audit.py").write_text(program)
    table = "made,site,predicted,label\n100,A,b,b\n300,A,b,c\n200,B,a,a\n"
    (tmp_path / "week-46.csv").write_text(table)
    words = [sys.executable, *command.split()[1:]]
    subprocess.run(words, cwd=tmp_path, check=True)
    expected = (Realised(200, "site=B", 1, 1), Realised(300, "all", 3, 2), Realised(300, "site=A", 2, 1))
    read = RealisedFiles().read(tmp_path / "density-audit.jsonl")
    assert (read.accuracies, read.remark) == (expected, None)
    (tmp_path / "week-46.csv").write_text(table.replace("00,", "000,"))
    subprocess.run(words, cwd=tmp_path, check=True)
    read = RealisedFiles().read(tmp_path / "density-audit.jsonl")
    assert (read.accuracies[:3], len(read.accuracies), read.remark) == (expected, 6, None)
