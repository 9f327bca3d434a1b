"""The walk of a record: the functions that it passes in the real daemon, from a source to a gauge."""

import json
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.daemon.process import Process

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


def walk(config: Path, write: Callable[[], None], *, records: int) -> Walk:
    """Run the daemon until its window has so many records, write one more, and return the walk of that one."""
    trace = config.with_name("walk.json")
    process = Process(config, module="tests.walk.tracer", environment={"WALK": str(trace)})
    try:
        process.wait_for(_RECORDS, records)
        os.kill(process.pid, signal.SIGUSR1)
        write()
        process.wait_for(_RECORDS, records + 1)
    finally:
        process.stop()
    # Of several runs of a stage the longest is the one with the record.
    stages = [max(runs, key=len) for runs in json.loads(trace.read_text("utf-8")).values()]
    return Walk(tuple(dict.fromkeys(function for stage in stages for function in stage)))


def table(found: Walk) -> str:
    """Return the functions of a walk by module, as a Markdown table."""
    rows = ["| Module | Functions, in the order of their first call |", "|---|---|"]
    for module in found.modules:
        names = [name for path, _, name in (one.partition(":") for one in found.functions) if path == module]
        shown = [f"`{name}`" for name in names if not name.rpartition(".")[2].startswith("__")]
        rows.append(f"| `{module}` | {', '.join(shown) or 'constructors'} |")
    return "\n".join(rows)
