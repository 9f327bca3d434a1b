"""The walk of a record: the functions that it passes in the real daemon, from a source to a gauge."""

import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.daemon.process import Process

WRITTEN = 4
"""Records whose walk is traced."""
_ENTERS_WINDOW = "core/window.py:SlidingWindow.take"
_HISTORY = "core/history.py:"
"""A commit also writes the history of an earlier evaluation, if that was not written yet: so in some runs all records pass it."""
_RECORDS = 'cpcmon_window_records{model="density",segment="all"}'


@dataclass(frozen=True)
class Walk:
    """Functions as `package/module.py:Class.method`, in the order of their first call."""

    functions: tuple[str, ...]

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules, in the order of their first call."""
        return tuple(dict.fromkeys(function.partition(":")[0] for function in self.functions))

    @property
    def package_changes(self) -> int:
        """How often the next module is in another package."""
        packages = [module.partition("/")[0] for module in self.modules]
        return sum(here != there for here, there in pairwise(packages))


def walk(config: Path, write: Callable[[int], None], *, records: int) -> Walk:
    """Run the daemon until its window has so many records, write more one by one, and return what each of them passes."""
    trace = config.with_name("walk.json")
    process = Process(config, module="tests.walk.tracer", environment={"WALK": str(trace)})
    try:
        process.wait_for(_RECORDS, records)
        os.kill(process.pid, signal.SIGUSR1)
        for number in range(WRITTEN):
            write(number)
            process.wait_for(_RECORDS, records + number + 1)
    finally:
        process.stop()
    stages: dict[str, list[list[str]]] = json.loads(trace.read_text("utf-8"))
    # Ingestion with what each record needs; of the other stages the run with most functions, which has fresh records.
    passed = [_in_all([run for run in stages.pop("ingest") if _ENTERS_WINDOW in run])]
    passed += [max(runs, key=len) for runs in stages.values()]
    return Walk(tuple(dict.fromkeys(function for functions in passed for function in functions)))


def _in_all(runs: list[list[str]]) -> list[str]:
    """Return the functions of all runs, as ordered in the last: what only some do is housekeeping."""
    common = set.intersection(*map(set, runs))
    return [function for function in runs[-1] if function in common and not function.startswith(_HISTORY)]


def table(found: Walk) -> str:
    """Return the functions of a walk by module, as a Markdown table."""
    rows = ["| Module | Functions, in the order of their first call |", "|---|---|"]
    for module in found.modules:
        names = [name for path, _, name in (one.partition(":") for one in found.functions) if path == module]
        shown = [f"`{name}`" for name in names if not name.rpartition(".")[2].startswith("__")]
        rows.append(f"| `{module}` | {', '.join(shown) or 'constructors'} |")
    return "\n".join(rows)
