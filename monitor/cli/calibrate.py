"""`cpcmon calibrate`: make a reference file from a labelled set."""

import argparse
from collections.abc import Sequence

import numpy as np

from monitor.cli.inputs import (
    add_decision_options,
    add_input_options,
    add_segment_options,
    check_output,
    decision_of,
    read_batch,
    segments_of,
)
from monitor.cli.parser import as_path
from monitor.cli.progress_bar import progress_bar
from monitor.core.baselines.labelled_baselines import FEWEST_RECORDS, SegmentBaselines
from monitor.core.estimate import HEADLINE, share_interval
from monitor.core.intervals import DEFAULT_LEVEL, LEVELS
from monitor.core.record_columns import Records
from monitor.core.segments import name_of, rows_by_segment
from monitor.errors import InvalidInput, UsageError
from monitor.reference.reference import Reference

_MOST_CLASSES_SHOWN = 20
_MOST_SEGMENTS_SHOWN = 10


def register(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.description = (
        "Make a reference file from a labelled validation set, and print its accuracy with an interval, its"
        " calibration, its classes and warnings."
    )
    parser.epilog = """\
examples:
  cpcmon calibrate --input validation.jsonl --model density --classes fatty,scattered,heterogeneous,dense --output density.ref
  cpcmon calibrate --input validation.csv --class-columns 'prob_*' --model density --model-version 2.1 --output density.ref
  cpcmon calibrate --input screening.jsonl --model screening --classes healthy,cancer --decide-at cancer=0.13 --output screening.ref
  cpcmon calibrate --input hospitals.jsonl --model density --classes fatty,scattered,heterogeneous,dense --segment-by site --segment-by site,scanner --output hospitals.ref
"""
    parser.add_argument(
        "--input", type=as_path, required=True, metavar="LABELLED", help="outputs with their true classes"
    )
    parser.add_argument("--model", required=True, metavar="NAME", help="name of the model")
    parser.add_argument(
        "--model-version",
        default="",
        metavar="TEXT",
        help="version of the model; records of other versions are then left out (default: any)",
    )
    parser.add_argument("--output", type=as_path, required=True, metavar="FILE", help="the reference file to write")
    parser.add_argument(
        "--level",
        type=float,
        default=DEFAULT_LEVEL,
        help=f"level of the intervals, from 0.5 to 0.99 (default: {DEFAULT_LEVEL})",
    )
    parser.add_argument("--labels", type=as_path, metavar="FILE.npy", help="the true classes, for an NPY input")
    add_segment_options(parser, "keep a baseline for each value with enough labelled records")
    add_decision_options(parser)
    add_input_options(parser, labels=True)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Calibrate, write the reference, and print its summary."""
    check_output("--output", options.output, options.input)
    if not options.model.strip():
        raise UsageError("--model: expected a name, found none")
    lowest, highest = LEVELS
    if not lowest <= options.level <= highest:
        raise UsageError(f"--level: expected a number from {lowest} to {highest}, found {options.level:g}")
    split_by, _ = segments_of(options)
    batch = read_batch(options, options.input, labels=options.labels)
    labels = batch.records.labels
    if labels is None or len(labels) == 0:
        raise InvalidInput(f"{options.input}: expected labelled records, found none")
    decision = decision_of(options, batch.classes)
    with progress_bar("replaying the reference") as progress:
        reference = Reference.from_accepted(
            batch.records,
            model=options.model,
            version=options.model_version,
            classes=batch.classes,
            level=options.level,
            progress=progress,
            decision=decision,
            segment_by=split_by,
        )
    reference.save(options.output)
    print("\n".join([*describe(reference), *describe_segments(reference, batch.records, split_by)]))
    print(f"\nwrote {options.output}")
    return 0


def describe(reference: Reference) -> list[str]:
    """Return the summary of a reference as lines."""
    numbers, summary = reference.calibration, reference.summary
    interval = share_interval(numbers.right, numbers.records, numbers.intervals.level)
    lines = [
        f"model              {reference.title}",
        f"records            {numbers.records:,}",
        f"classes            {numbers.classes:,}",
        f"decides            {numbers.decision.described(reference.classes)}",
        (
            f"accuracy           {numbers.accuracy:.4f}"
            f"  ({100 * numbers.intervals.level:g}% interval {interval.lower:.4f} to {interval.upper:.4f})"
        ),
        f"temperature        {numbers.temperature:.4f}",
        f"calibration error  {summary.calibration_error:.4f} raw, {summary.calibration_error_scaled:.4f} scaled",
        f"fingerprint        {reference.fingerprint[:16]}",
        "",
        f"{'class':<20} {'records':>8} {'prevalence':>11} {'predicted':>10} {'accuracy':>9}",
    ]
    counted = zip(reference.classes, summary.class_records, summary.class_right, summary.class_predicted, strict=True)
    by_size = sorted(counted, key=lambda row: -row[1])
    for name, records, right, predicted in by_size[:_MOST_CLASSES_SHOWN]:
        accuracy = f"{right / records:9.4f}" if records else "        –"
        lines.append(
            f"{name[:20]:<20} {records:>8,} {records / numbers.records:>11.4f} {predicted / numbers.records:>10.4f} {accuracy}"
        )
    if len(by_size) > _MOST_CLASSES_SHOWN:
        lines.append(f"… and {len(by_size) - _MOST_CLASSES_SHOWN:,} smaller classes")
    lines += [f"warning: {sentence}" for sentence in summary.warnings().values()]
    return lines


def describe_segments(reference: Reference, records: Records, split_by: Sequence[Sequence[str]]) -> list[str]:
    """Return the labelled baselines as lines: how many, those that differ most, and which segments are too small."""
    if not split_by:
        return []
    baselines = reference.calibration.segments
    lines = [""]
    for names in split_by:
        found = {segment: len(rows) for segment, rows in rows_by_segment(names, records.fields)}
        without = len(records) - sum(found.values())
        small = sorted((segment for segment, count in found.items() if count < FEWEST_RECORDS), key=name_of)
        lines.append(
            f"segments by {', '.join(names)}: {len(found) - len(small):,} of {len(found):,} have a labelled baseline"
            + (f"; {without:,} records have no value" if without else "")
        )
        if small:
            named = ", ".join(f"{name_of(segment)} ({found[segment]})" for segment in small[:_MOST_SEGMENTS_SHOWN])
            more = f" and {len(small) - _MOST_SEGMENTS_SHOWN:,} more" if len(small) > _MOST_SEGMENTS_SHOWN else ""
            lines.append(f"fewer than {FEWEST_RECORDS} records: {named}{more}")
    return lines if baselines is None else [*lines, "", *_most_different(reference, baselines)]


def _most_different(reference: Reference, baselines: SegmentBaselines) -> list[str]:
    """Return a table of the segments whose accuracy is furthest from that of the whole."""
    numbers = reference.calibration
    bias = baselines.bias[baselines.names.index(HEADLINE)]
    order = np.argsort(-np.abs(baselines.accuracy - numbers.accuracy), kind="stable")[:_MOST_SEGMENTS_SHOWN]
    lines = [f"{'segments that differ most':<40} {'records':>8} {'accuracy':>9} {'baseline':>9} {'bias':>8}"]
    for place in order.tolist():
        name, records = name_of(baselines.segments[place])[:40], int(baselines.records[place])
        own = baselines.right[place] / records
        lines.append(f"{name:<40} {records:>8,} {own:>9.4f} {baselines.accuracy[place]:>9.4f} {bias[place]:>+8.4f}")
    return [
        *lines,
        f"baseline: what estimates of the segment are compared with; bias: what is taken off its `{HEADLINE}`.",
        f"Where few records support them, both are drawn towards the whole reference, {numbers.accuracy:.4f}.",
    ]
