"""Input and output files of the offline commands: shared options, reading, atomic writing."""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from monitor.cli.progress_bar import working
from monitor.core.decisions import DecidedBy, Decision
from monitor.core.estimate import MINIMUM_RECORDS
from monitor.core.segments import Segmentation
from monitor.errors import InvalidInput, Problem, UsageError
from monitor.records.offline_files import Decoded, offline_schema, read_file
from monitor.records.record_schema import OutputKind

FORMATS = "JSONL, CSV with a header, NPZ, NPY; Parquet and Arrow with the extra [parquet]"


def add_input_options(parser: argparse.ArgumentParser, *, labels: bool) -> argparse._ActionsContainer:
    """Add the options for reading a file; return their group."""
    group = parser.add_argument_group("input format", f"Formats: {FORMATS}, chosen by the file name's extension.")
    add_kind_option(group)
    group.add_argument(
        "--vector-field",
        metavar="NAME",
        help="field of the vector, or a dotted path (default: probs, logits or score, by --kind)",
    )
    group.add_argument(
        "--class-columns",
        metavar="NAMES",
        help="one column per class instead: 'prob_*', or comma-separated column names in class order",
    )
    if labels:
        group.add_argument(
            "--label-field", metavar="NAME", default="label", help="field of the true class, or a dotted path"
        )
        group.add_argument(
            "--classes",
            metavar="NAMES",
            help="comma-separated class names in vector order (default: numbers)",
        )
    group.add_argument("--skip-bad", action="store_true", help="skip bad records and report their number")
    return group


def add_decision_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how the device decides."""
    group = parser.add_argument_group("decisions", "How the device decides (default: for the most probable class).")
    one = group.add_mutually_exclusive_group()
    one.add_argument("--decide", choices=[DecidedBy.ARGMAX.value], help="for the most probable class")
    one.add_argument(
        "--decide-at", metavar="CLASS=THRESHOLD", help="of two classes, for this one from a probability on: cancer=0.13"
    )
    add_decision_field(one)


def add_decision_field(group: argparse._ActionsContainer) -> None:
    """Add --decide-field."""
    group.add_argument(
        "--decide-field",
        metavar="NAME",
        help="as the record says: the field of the decided class, null if the record was referred to a person",
    )


def check_decision_field(options: argparse.Namespace, decision: Decision, classes: tuple[str, ...]) -> None:
    """Raise UsageError unless --decide-field is given exactly if the records decide."""
    by_records = decision.by is DecidedBy.FIELD
    if by_records != (options.decide_field is not None):
        decides = f"the reference decides {decision.described(classes)}"
        expected, found = ("the field of the decision", "none") if by_records else ("none", options.decide_field)
        raise UsageError(Problem("--decide-field", expected, f"{found}: {decides}"))


def add_segment_options(parser: argparse.ArgumentParser, purpose: str) -> None:
    """Add the options that split records into segments."""
    group = parser.add_argument_group("segments", "As `segment_by` and `fields.segments` of the daemon.")
    group.add_argument(
        "--segment-by",
        action="append",
        default=[],
        metavar="FIELDS",
        help=f"{purpose}: site, or site,scanner for each scanner of a site; repeatable",
    )
    group.add_argument(
        "--segment-field",
        action="append",
        default=[],
        metavar="NAME=PATH",
        help="the dotted path of a segment field, if it is not its name: site=meta.site; repeatable",
    )


def segments_of(options: argparse.Namespace) -> tuple[tuple[tuple[str, ...], ...], dict[str, str | None]]:
    """Return the sets of fields to split by; and the fields, with their paths if they have one."""
    try:
        split_by = Segmentation(tuple(_names(text) or () for text in options.segment_by)).split_by
    except ValueError:
        expected = "fields such as site or site,scanner, each set once"
        raise UsageError(Problem("--segment-by", expected, ", ".join(map(repr, options.segment_by)))) from None
    fields: dict[str, str | None] = dict.fromkeys(name for names in split_by for name in names)
    if "" in fields:
        raise UsageError(Problem("--segment-by", "names of fields", "an empty name"))
    for text in options.segment_field:
        name, _, path = text.partition("=")
        if name not in fields or not path:
            raise UsageError(Problem("--segment-field", "NAME=PATH, with a name of --segment-by", repr(text)))
        fields[name] = path
    return split_by, fields


def decision_of(options: argparse.Namespace, classes: tuple[str, ...]) -> Decision:
    """Return how the device decides."""
    if options.decide_field:
        return Decision(DecidedBy.FIELD)
    if not options.decide_at:
        return Decision()
    if "=" not in options.decide_at:
        expected = "CLASS=THRESHOLD such as cancer=0.13"
        raise UsageError(Problem("--decide-at", expected, repr(options.decide_at)))
    return Decision.parsed("--decide-at", options.decide_at, classes)


def add_kind_option(group: argparse._ActionsContainer) -> None:
    """Add --kind."""
    group.add_argument(
        "--kind",
        choices=[kind.value for kind in OutputKind],
        default=OutputKind.PROBS.value,
        help="type of the model output (default: probs)",
    )


def add_minimum_option(group: argparse._ActionsContainer) -> None:
    """Add --minimum-records."""
    group.add_argument(
        "--minimum-records",
        type=int,
        default=MINIMUM_RECORDS,
        metavar="N",
        help=f"records needed for an estimate (default: {MINIMUM_RECORDS})",
    )


def check_minimum(options: argparse.Namespace, option: str, window: int | None) -> None:
    """Reject a minimum below 1, and a window smaller than the minimum."""
    least = options.minimum_records
    if least < 1:
        raise UsageError(f"--minimum-records: expected a number of records above 0, found {least}")
    if window is not None and window < least:
        raise UsageError(
            f"{option}: expected at least {least:,} records, the minimum for an estimate, found {window:,};"
            " --minimum-records lowers it"
        )


def read_batch(
    options: argparse.Namespace, path: Path, classes: tuple[str, ...] | None = None, labels: Path | None = None
) -> Decoded:
    """Read a file with the given options; raise InvalidInput on bad records, unless --skip-bad is given."""
    with_labels = hasattr(options, "label_field")
    named = getattr(options, "classes", None)
    fields = segments_of(options)[1] if hasattr(options, "segment_by") else {}
    schema = offline_schema(
        kind=OutputKind(options.kind),
        vector_field=options.vector_field,
        class_columns=_names(options.class_columns),
        label_field=options.label_field if with_labels else None,
        classes=classes or _names(named),
        decision_field=getattr(options, "decide_field", None),
        segments=fields,
    )
    with working(f"reading {path}"):
        decoded = read_file(path, schema, labels=labels)
    if decoded.unusable:
        raise InvalidInput(f"{path}: {decoded.unusable}")
    for hint in decoded.hints:
        print(f"{path}: {hint}", file=sys.stderr)
    bad = decoded.rejections
    if bad.total and not options.skip_bad:
        raise InvalidInput(f"{path}: {bad}\nnothing was written; --skip-bad skips bad records")
    if bad.total:
        good = len(decoded.records)
        skipped = f"skipped {bad.total:,} bad of {bad.total + good:,} records: {bad.by_reason()}"
        if not good:
            raise InvalidInput(f"{path}: expected at least one good record, found none; {skipped}")
        print(f"{path}: {skipped}", file=sys.stderr)
    for name, field in fields.items():
        if name not in decoded.records.fields or decoded.records.fields[name].are("").all():
            expected = f"records with the field {field or name!r}"
            raise UsageError(
                Problem("--segment-by", expected, f"none in {path}; --segment-field {name}=PATH names another field")
            )
    if decoded.referred:
        print(f"{path}: left out {decoded.referred:,} records that were referred to a person", file=sys.stderr)
    return decoded


def check_output(option: str, path: Path, *inputs: Path) -> None:
    """Reject, before any work, an output that cannot be written or would overwrite an input."""
    where = f"{option} {path}"
    if path.is_dir() or not path.parent.is_dir():
        found = "a directory" if path.is_dir() else "no such directory"
        raise UsageError(f"{where}: expected a file in an existing directory, found {found}")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{where}: expected a writable directory, found a read-only one")
    if any(path.exists() and other.exists() and path.samefile(other) for other in inputs):
        raise UsageError(f"{where}: expected a file other than the input, found the input itself")


def _names(text: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in text.split(",")) if text else None


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file atomically: on a full disk, the previous content stays."""
    if path.exists() and not path.is_file():
        path.write_bytes(content)  # such as /dev/stdout
        return
    target = path.resolve()  # a link stays a link
    # In a private directory, so that nobody who scans for files finds a partial one.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".cpcmon-") as private:
        whole = Path(private, target.name)
        whole.write_bytes(content)
        whole.replace(target)
