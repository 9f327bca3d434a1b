"""The costs of this tree against those of an older one, as ratios with targets.

Each tree has a worker process that runs one measurement at a time (`benchmarks/measures.py`), with the same interpreter and
libraries. The workers take turns; medians count. `--old` is a commit, which is copied to .bench, or a folder.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measures import CLASSES, REFERENCE_RECORDS, outputs
from benchmarks.ratios import HEAD, ratio
from benchmarks.speed import nannyml_seconds

ROOT = Path(__file__).resolve().parent.parent
BEFORE_ISSUE_17 = "abce7a64"


@dataclass(frozen=True, slots=True)
class Row:
    """A measurement, and the target for its ratio: `>= 10`."""

    name: str
    wanted: str = ""
    rounds: int = 5
    old_over_new: bool = False
    """Whether the ratio is that of the two trees; else each tree gives its own."""


ROWS = (
    Row("insert and evict, K = 10", "", 9, old_over_new=True),
    Row("insert and evict, K = 100", ">= 3", 9, old_over_new=True),
    Row("insert and evict, K = 1,000", ">= 10", 9, old_over_new=True),
    Row("calibrate 10,000 × 10", ">= 4", 3, old_over_new=True),
    Row("calibrate 10,000 × 1,000", "", 1, old_over_new=True),
    Row("evaluate 10,000 windows over evaluate one", "<= 500", 3),
    Row("evaluate a window of 1,000,000 records over one of 10,000", "<= 1.5"),
    Row("memory of a window at m = 10,000 over that at m = 1,000", "<= 1.1", 1),
    Row("ingest JSONL, only `probs`, over bare msgspec"),
    Row("ingest JSONL, all fields with ids, over bare msgspec", ">= 0.5", 9),
    Row("the same, a window of 50,000"),
    Row("the same, 5 sites"),
    Row("the same, 5 sites and 10 scanners each", ">= 0.4", 9),
    Row("state bytes written a record, 3 windows over 1", "<= 1.3", 1),
    Row("restart of 1,000,000 records over reading their bytes", "<= 15"),
)
_NANNYML = "NannyML's CBPE over one tick of 1,000 records"


class Worker:
    """A process that measures with the package in a folder."""

    def __init__(self, tree: Path, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, ROOT / "benchmarks" / "measures.py", folder],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, name: str) -> float:
        """Return a measurement."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("a worker without pipes")
        print(name, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def stop(self) -> None:
        """End the process."""
        self._process.communicate()


def tree_of(old: str) -> Path:
    """Return the folder of an older tree; a commit is copied once."""
    if Path(old).is_dir():
        return Path(old).resolve()
    tree = ROOT / ".bench" / f"cpcmon-{old}"
    if not (tree / "monitor").exists():
        tree.parent.mkdir(exist_ok=True)
        archive = f"{tree}.zip"
        subprocess.run(["git", "archive", "--output", archive, old, "monitor"], cwd=ROOT, check=True)  # noqa: S607
        shutil.unpack_archive(archive, tree)
    return tree


def compare(row: Row, old: Callable[[str], float], new: Callable[[str], float]) -> None:
    """Measure in turns and print a line of the table."""
    pairs = [(old(row.name), new(row.name)) for _ in range(row.rounds)]
    if row.old_over_new:
        ratio(f"{row.name}, old over new", [before / after for before, after in pairs], row.wanted, [1.0])
        print(f"<!-- {_time(pairs, 0)} before, {_time(pairs, 1)} now -->", file=sys.stderr)
    else:
        ratio(row.name, [after for _, after in pairs], row.wanted, [before for before, _ in pairs])


def _time(pairs: Sequence[tuple[float, float]], place: int) -> str:
    median = statistics.median(pair[place] for pair in pairs)
    return f"{median:.2f} s" if median > 0.1 else f"{1e6 * median:.3g} µs a record"


def against_nannyml(old: Callable[[str], float], new: Callable[[str], float]) -> None:
    """Print the ratio of NannyML's time for a window to ours."""
    reference, window = outputs(REFERENCE_RECORDS, CLASSES, 1), outputs(1000, CLASSES, 2)[0]
    theirs = nannyml_seconds(*reference, window, rounds=3)
    if isinstance(theirs, str):
        print(f"NannyML: {theirs}", file=sys.stderr)
        return
    rounds = [(taken / old("tick"), taken / new("tick")) for taken in theirs]
    ratio(_NANNYML, [after for _, after in rounds], ">= 150", [before for before, _ in rounds])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="words of the rows to measure; else all")
    parser.add_argument("--old", default=BEFORE_ISSUE_17, metavar="COMMIT|FOLDER")
    asked = parser.parse_args()

    def wanted(name: str) -> bool:
        return not asked.rows or any(word in name for word in asked.rows)

    with tempfile.TemporaryDirectory(prefix="cpcmon-bench-", dir=os.environ.get("BENCH_DIR", ".")) as folder:
        old, new = (Worker(tree, Path(folder).resolve()) for tree in (tree_of(asked.old), ROOT))
        print(HEAD, flush=True)
        for row in ROWS:
            if wanted(row.name):
                compare(row, old, new)
        if wanted(_NANNYML):
            against_nannyml(old, new)
        old.stop()
        new.stop()


if __name__ == "__main__":
    main()
