"""Each table of measurements names the command that produces it."""

import re

import pytest

from tests.conftest import ROOT
from tests.docs.markdown import PAGES

_TABLES = [
    one for one in PAGES["docs/performance.md"].prose.split("\n## ")[1:] if re.search(r"^\|--", one, re.MULTILINE)
]


@pytest.mark.parametrize("section", _TABLES, ids=[one.partition("\n")[0] for one in _TABLES])
def test_every_table_names_a_benchmark_that_exists(section: str) -> None:
    modules = re.findall(r"`python -m (benchmarks\.\w+)", section)
    assert modules
    assert all((ROOT / f"{module.replace('.', '/')}.py").is_file() for module in modules)
