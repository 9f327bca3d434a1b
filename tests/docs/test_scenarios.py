"""tests/SCENARIOS.md: every scenario has one row, and the tests that it names exist."""

import ast
import re
from functools import cache

from tests.conftest import ROOT

_COUNTS = {"A": 49, "B": 22, "C": 19, "D": 21, "E": 20}
_ROWS = re.findall(r"^\| (\w+) \| (.+) \| (.+) \|$", (ROOT / "tests/SCENARIOS.md").read_text("utf-8"), re.MULTILINE)


@cache
def _tests(file: str) -> set[str]:
    """Return the names in a test module: functions, methods after their class, and classes made by assignment."""
    names = set()
    for node in ast.parse((ROOT / file).read_text("utf-8")).body:
        match node:
            case ast.FunctionDef(name=name):
                names.add(name)
            case ast.ClassDef(name=name, body=body):
                names |= {f"{name}::{one.name}" for one in body if isinstance(one, ast.FunctionDef)}
            case ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
    return {name for name in names if name.lower().startswith("test")}


def test_every_scenario_has_exactly_one_row() -> None:
    expected = [f"{letter}{number}" for letter, count in _COUNTS.items() for number in range(1, count + 1)]
    assert [row[0] for row in _ROWS] == expected


def test_the_named_tests_exist() -> None:
    """Each cell is `none`, or one test or more."""
    for name, _, cell in _ROWS:
        for one in cell.split(", ") if cell != "none" else []:
            file, _, test = one.strip("`").partition("::")
            assert test in _tests(file), f"{name}: expected the name of a test, found {one}"
