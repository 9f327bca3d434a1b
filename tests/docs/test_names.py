"""Metrics and settings on pages exist."""

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.config.reading import read_config
from tests.docs.markdown import PAGES

_SERIES = re.compile(r"(?<![\w/.:-])cpcmon_[a-z0-9_]+(?![\w*…])")
_WHOLE = """\
storage: {{path: state}}
sources:
  - name: results
    type: directory
    path: inbox
{source}
models:
  - name: density
    reference: density.ref
    segment_by: [[site]]
{model}
"""


def _series() -> set[str]:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", PAGES["docs/metrics.md"].text, re.MULTILINE)
    parts = {f"{name}_{part}" for name, kind in rows if kind == "histogram" for part in ("bucket", "sum", "count")}
    return {name for name, _ in rows} | parts


@pytest.mark.parametrize("name", PAGES)
def test_metrics_on_a_page_are_in_docs_metrics(name: str) -> None:
    """Another test compares docs/metrics.md with the daemon. `*` and `…` match several names."""
    named = {found for found in _SERIES.findall(PAGES[name].text) if not found.endswith("_")}
    assert named - _series() == set()


def _settings() -> Iterator[tuple[str, str]]:
    """Yield YAML blocks with a part of a configuration, completed. `tests/config/test_kafka_page.py` reads docs/kafka.md."""
    for name, page in PAGES.items():
        for block in page.blocks("yaml"):
            top = set(re.findall(r"^(\w+):", block, re.MULTILINE))
            indented = textwrap.indent(block, "    ")
            if top == {"sources"}:
                whole = _WHOLE.format(source="", model="")
                yield name, block + whole[: whole.index("sources:")] + whole[whole.index("models:") :]
            elif top == {"models"}:
                yield name, _WHOLE.format(source="", model="").partition("models:")[0] + block
            elif top == {"fields"}:
                yield name, _WHOLE.format(source=indented, model="")
            elif top == {"alerts"}:
                yield name, _WHOLE.format(source="", model=indented)


def test_settings_are_found() -> None:
    """An empty search would pass the test below."""
    assert {"docs/records.md", "docs/alerts.md"} <= {name for name, _ in _settings()}


@pytest.mark.parametrize(("name", "settings"), list(_settings()))
def test_settings_on_a_page_are_valid(name: str, settings: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(settings, encoding="utf-8")
    assert read_config(file).models[0].name == "density", name
