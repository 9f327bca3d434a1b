"""Options of the offline commands that describe an input file, and output files that are written whole or not at all."""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from monitor.cli.progress_bar import working
from monitor.core.estimate import MINIMUM_RECORDS
from monitor.errors import InvalidInput, UsageError
from monitor.records.layout import Layout, OutputKind
from monitor.records.offline.files import read_file
from monitor.records.offline.offline_batch import Batch

FORMATS = "JSONL, CSV with a header, NPZ, NPY; Parquet and Arrow with the extra [parquet]"


def add_input_options(parser: argparse.ArgumentParser, *, labels: bool) -> None:
    """Add the options that say how to read a file."""
    group = parser.add_argument_group("how to read the input", f"Formats: {FORMATS}, chosen by the file's ending.")
    group.add_argument(
        "--kind",
        choices=[kind.value for kind in OutputKind],
        default=OutputKind.PROBS.value,
        help="what the numbers are; declared, never guessed (default: probs)",
    )
    group.add_argument(
        "--vector-field", metavar="NAME", help="field that holds the vector (default: named by the kind)"
    )
    group.add_argument(
        "--class-columns",
        metavar="NAMES",
        help="one column a class instead: 'prob_*', or column names in class order, separated by commas",
    )
    if labels:
        group.add_argument("--label-field", metavar="NAME", default="label", help="field that holds the true class")
        group.add_argument(
            "--classes",
            metavar="NAMES",
            help="class names in the vector's order, separated by commas (default: numbers)",
        )
    group.add_argument("--skip-bad", action="store_true", help="go on without bad records, and say how many there were")


def add_minimum_option(group: argparse._ActionsContainer) -> None:
    """Add the option that says from how many records on there is an estimate."""
    group.add_argument(
        "--minimum-records",
        type=int,
        default=MINIMUM_RECORDS,
        metavar="N",
        help=f"no estimate from fewer records (default: {MINIMUM_RECORDS})",
    )


def check_minimum(options: argparse.Namespace, option: str, window: int | None) -> None:
    """Refuse a minimum below 1, and a window that can never hold the minimum."""
    least = options.minimum_records
    if least < 1:
        raise UsageError(f"--minimum-records: expected a number of records above 0, found {least}")
    if window is not None and window < least:
        raise UsageError(
            f"{option}: expected {least:,} records or more, which an estimate needs, found {window:,};"
            " --minimum-records lowers it"
        )


def read_batch(
    options: argparse.Namespace, path: Path, classes: tuple[str, ...] | None = None, labels: Path | None = None
) -> Batch:
    """Read a file as the options say; refuse it for bad records unless they are to be skipped."""
    with_labels = hasattr(options, "label_field")
    named = getattr(options, "classes", None)
    layout = Layout(
        kind=OutputKind(options.kind),
        vector_field=options.vector_field,
        class_columns=_names(options.class_columns),
        label_field=options.label_field if with_labels else None,
        classes=classes or _names(named),
    )
    with working(f"reading {path}"):
        decoded = read_file(path, layout, labels=labels)
    if decoded.unusable:
        raise InvalidInput(f"{path}: {decoded.unusable}")
    for hint in decoded.hints:
        print(f"{path}: {hint}", file=sys.stderr)
    bad = decoded.rejections
    if bad.total and not options.skip_bad:
        raise InvalidInput(f"{path}: {bad}\nnothing was written; --skip-bad goes on without the bad records")
    if bad.total:
        good = len(decoded.batch.probabilities)
        told = f"skipped {bad.total:,} bad of {bad.total + good:,} records: {bad.by_reason()}"
        if not good:
            raise InvalidInput(f"{path}: expected good records beside the bad ones, found none; {told}")
        print(f"{path}: {told}", file=sys.stderr)
    return decoded.batch


def check_output(option: str, path: Path, *inputs: Path) -> None:
    """Refuse, before any work is done, an output that cannot be written or would destroy an input."""
    where = f"{option} {path}"
    if path.is_dir() or not path.parent.is_dir():
        found = "a directory" if path.is_dir() else "no such directory"
        raise UsageError(f"{where}: expected a file in a directory that exists, found {found}")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{where}: expected a directory that may be written to, found one that may not")
    if any(path.exists() and other.exists() and path.samefile(other) for other in inputs):
        raise UsageError(f"{where}: expected another file than the input, found the input itself")


def _names(text: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in text.split(",")) if text else None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file. When it cannot be written to its end, as on a full disk, what was there before stays."""
    if path.exists() and not path.is_file():
        path.write_bytes(content)  # such as /dev/stdout, which nothing could take the place of
        return
    target = path.resolve()  # a link stays a link
    # A folder of its own, so that nobody who looks for such files finds half of one.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".cpcmon-") as private:
        whole = Path(private, target.name)
        whole.write_bytes(content)
        whole.replace(target)
