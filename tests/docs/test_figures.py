"""Tables of measurements say which command makes them."""

import re

import pytest

from tests.conftest import ROOT
from tests.docs.markdown import PAGES

_TABLES = [
    one for one in PAGES["docs/performance.md"].prose.split("\n## ")[1:] if re.search(r"^\|--", one, re.MULTILINE)
]


@pytest.mark.parametrize("section", _TABLES, ids=[one.partition("\n")[0] for one in _TABLES])
def test_every_table_of_measurements_names_the_command_that_makes_it(section: str) -> None:
    """And the command is there."""
    modules = re.findall(r"`python -m (benchmarks\.\w+)", section)
    assert modules
    assert all((ROOT / f"{module.replace('.', '/')}.py").is_file() for module in modules)
