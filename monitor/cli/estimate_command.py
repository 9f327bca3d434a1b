"""`cpcmon estimate`: estimate the accuracy from unlabelled outputs and a reference."""

import argparse
import csv
import io
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from monitor.cli.inputs import (
    add_decision_field,
    add_input_options,
    add_minimum_option,
    add_segment_options,
    check_decision_field,
    check_minimum,
    check_output,
    read_batch,
    segments_of,
)
from monitor.cli.parser import as_path
from monitor.cli.performance_text import (
    CANNOT_SAY,
    IF_ONLY,
    MACRO,
    SHORT,
    as_objects,
    compared,
    mix_objects,
    mix_table,
    notes,
    table,
    value_lines,
)
from monitor.cli.plot import check, draw_window
from monitor.cli.progress_bar import working
from monitor.core.calibration import WindowEstimate
from monitor.core.decisions import DecidedBy, Decision
from monitor.core.estimate import ADAPTIVE, CONSENSUS, HEADLINE, Estimate, Interval, PredictionSets, Result
from monitor.core.estimators import ESTIMATORS, EmptySets
from monitor.core.estimators.ensemble import headline_in
from monitor.core.intervals import by_level
from monitor.core.performance import Metric, Target
from monitor.core.segments import Segment, name_of
from monitor.errors import Problem, UsageError
from monitor.reference.offline import estimate_segments, estimate_windows, shown, variants
from monitor.reference.reference import Reference


def register(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.description = (
        "Estimate the accuracy from a file of unlabelled outputs with every estimator, and sensitivity, specificity,"
        " predictive values, F1, AUROC and the class mix; print the estimates with intervals as a table, JSON or CSV."
        " `adaptive` is the main number. Where there is no estimate, the reason is printed."
    )
    parser.epilog = """\
examples:
  cpcmon estimate --reference density.ref --input site_b.jsonl
  cpcmon estimate --reference density.ref --input site_b.jsonl --window 1000 --output csv
  cpcmon estimate --reference density.ref --input site_b.jsonl --plot site_b.svg
  cpcmon estimate --reference hospitals.ref --input week.jsonl --segment-by site
"""
    parser.add_argument(
        "--reference", type=as_path, required=True, metavar="FILE", help="reference made by `cpcmon calibrate`"
    )
    parser.add_argument("--input", type=as_path, required=True, metavar="OUTPUTS", help="unlabelled outputs")
    parser.add_argument(
        "--window", type=int, metavar="N", help="one estimate per N successive records (default: one for all)"
    )
    add_minimum_option(parser)
    parser.add_argument(
        "--output", choices=["table", "json", "csv"], default="table", help="output format (default: table)"
    )
    add_watch_option(parser)
    parser.add_argument(
        "--plot",
        type=as_path,
        metavar="FILE",
        help="plot the metrics of each class and the class mix: .svg, .png or .html",
    )
    add_segment_options(parser, "one estimate per value, compared with its labelled baseline")
    add_variant_options(parser)
    add_decision_field(add_input_options(parser, labels=False))
    parser.set_defaults(run=run)


def add_watch_option(parser: argparse.ArgumentParser) -> None:
    """Add --watch-class."""
    parser.add_argument(
        "--watch-class",
        action="append",
        default=[],
        metavar="NAME",
        help="show the metrics of this class only; repeatable (default: of all classes, if there are at most 20)",
    )


def add_variant_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that select variants of estimators."""
    group = parser.add_argument_group("estimator variants")
    group.add_argument("--doc-absolute", action="store_true", help="DOC as printed in the paper; cannot detect a drop")
    group.add_argument(
        "--empty-sets",
        choices=[policy.value for policy in EmptySets],
        default=EmptySets.TOP.value,
        help="value of an empty conformal set in cpc_acc and cpc_ac (default: top, the top confidence)",
    )


def _check_options(options: argparse.Namespace, *, variant: bool) -> None:
    """Reject options that contradict each other."""
    if options.window is not None and options.window < 1:
        raise UsageError(f"--window: expected a number of records above 0, found {options.window}")
    check_minimum(options, "--window", options.window)
    if options.segment_by and (options.window or options.plot or options.watch_class or variant):
        found = "--window, --plot, --watch-class or a variant"
        raise UsageError(Problem("--segment-by", "one window per segment, of all estimators as they are", found))
    if options.plot:
        if options.window is not None:
            raise UsageError(Problem("--plot", "one window", f"--window {options.window}"))
        check(options.plot)
        check_output("--plot", options.plot, options.reference, options.input)


def run(options: argparse.Namespace) -> int:
    """Read, estimate and print."""
    chosen = variants(doc_absolute=options.doc_absolute, empty_sets=options.empty_sets)
    _check_options(options, variant=bool(chosen))
    split_by, _ = segments_of(options)
    reference = Reference.load(options.reference)
    for sentence in reference.warnings().values():
        print(f"{options.reference}: warning: {sentence}", file=sys.stderr)
    check_decision_field(options, reference.calibration.decision, reference.classes)
    wanted = shown("--watch-class", reference.classes, options.watch_class)
    records = read_batch(options, options.input, reference.classes).records
    if split_by:
        with working(f"estimating from {len(records):,} records"):
            segments = estimate_segments(reference, records, split_by, options.minimum_records)
        print(_SEGMENT_FORMS[options.output](reference, segments, options.minimum_records), end="")
        return 0
    with working(f"estimating from {len(records):,} records"):
        windows = list(estimate_windows(reference, records, options.window, chosen, options.minimum_records, wanted))
    if options.plot:
        with working("drawing"):
            draw_window(reference, windows[0], options.plot, title=f"{options.input.name}, {reference.title}")
    if options.output == "json":
        objects = [as_object(reference, window, options.minimum_records) for window in windows]
        document = objects[0] if options.window is None else {"windows": objects}
        print(json.dumps(document, indent=1, allow_nan=False))
    elif options.output == "csv":
        print(as_csv(reference, windows), end="")
    elif options.window is None:
        print("\n".join(as_table(reference, windows[0], options.minimum_records)))
    else:
        print("\n".join([*as_series(reference, windows), *performance_series(reference, windows, options.watch_class)]))
    return 0


def as_object(reference: Reference, window: WindowEstimate, minimum: int) -> dict[str, Any]:
    """Return one window as JSON."""
    metrics, mix = compared(reference, window)
    return {
        "records": window.records,
        "minimum_records": minimum,
        "level": reference.calibration.intervals.level,
        "estimators": {name: _answer_object(result) for name, result in window.estimators.items()},
        "field": by_level(window.field),
        "disagreement": window.disagreement,
        "chance_disagreement": window.chance_disagreement,
        "performance": as_objects(reference.classes, metrics),
        "class_mix": mix_objects(reference.classes, mix),
    }


def _answer_object(result: Result) -> dict[str, Any]:
    answer: dict[str, Any] = {"value": None, "lower": None, "upper": None}
    if not isinstance(result, Estimate):
        answer["reason"] = result.why.value
    else:
        answer["value"] = result.accuracy
        if result.interval is not None:
            answer |= {"lower": result.interval.lower, "upper": result.interval.upper}
    if result.prediction_sets is not None:
        answer |= {"set_size": result.prediction_sets.mean_size, "empty_share": result.prediction_sets.empty_share}
    return answer


def as_csv(reference: Reference, windows: Sequence[WindowEstimate]) -> str:
    """Return one line for each window and estimator, then for each metric and class."""
    text = io.StringIO()
    keys = ("value", "lower", "upper", "set_size", "empty_share", "reason", "class", "cases", "reference")
    writer = csv.DictWriter(text, ["window", "records", "estimator", *keys], lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for number, window in enumerate(windows, 1):
        metrics, mix = compared(reference, window)
        field = by_level(window.field) or {}
        rows: list[tuple[str, dict[str, Any]]] = [
            *((name, _answer_object(result)) for name, result in window.estimators.items()),
            *((f"field_{level}", dict(zip(("lower", "upper"), ends, strict=True))) for level, ends in field.items()),
            ("disagreement", {"value": window.disagreement}),
            ("chance_disagreement", {"value": window.chance_disagreement}),
            *((one["metric"], one | {"reason": one["why"]}) for one in as_objects(reference.classes, metrics)),
            *(("class_mix", one) for one in mix_objects(reference.classes, mix)),
        ]
        for name, cells in rows:
            writer.writerow({**cells, "window": number, "records": window.records, "estimator": name})
    return text.getvalue()


def as_table(reference: Reference, window: WindowEstimate, minimum: int) -> list[str]:
    """Return all estimators of one window as a text table."""
    numbers = reference.calibration
    level = f"{100 * numbers.intervals.level:g}% interval"
    heading = (
        f"{window.records:,} records, reference {reference.title}:"
        f" {numbers.records:,} labelled records, accuracy {numbers.accuracy:.3f}"
        + ("" if numbers.decision == Decision() else f", decides {numbers.decision.described(reference.classes)}")
    )
    if window.records < minimum:
        return [heading, f"{window[headline_in(window)]}; --minimum-records lowers the minimum"]
    lines = [heading, "", f"{'estimator':<22} {'raw':>6}  {level:<15} {'scaled':>6}  {level:<15}"]
    for member in ESTIMATORS:
        raw, scaled = window[member.name], window[f"{member.name}_ts"]
        lines.append(f"{member.name:<22} {_cells(raw)} {_cells(scaled)}".rstrip())
    combined = (name for name in (CONSENSUS, ADAPTIVE) if name in window)
    lines += [*(f"{name:<22} {_cells(window[name])}".rstrip() for name in combined), "", _field_line(window)]
    if window.disagreement is not None and window.chance_disagreement is not None:
        unusual = window.disagreement > window.chance_disagreement
        lines.append(
            f"disagreement {window.disagreement:.3f}; chance alone stays below {window.chance_disagreement:.3f}"
            + (": the estimators disagree, so get labels for this window" if unusual else "")
        )
    lines += ["", f"{'conformal sets':<22} {'size':>6}  {'empty':<15} {'scaled':>6}  {'empty':<15}".rstrip()]
    for member in ESTIMATORS:
        sets, scaled_sets = (window[name].prediction_sets for name in (member.name, f"{member.name}_ts"))
        if sets is not None and scaled_sets is not None:
            lines.append(f"{member.name:<22} {_set_cells(sets)} {_set_cells(scaled_sets)}".rstrip())
    return [
        *lines,
        "",
        "Intervals cover sampling error, not shift: they hold if this window is distributed like the reference.",
        "The field interval is experience: in the real shifts we tried, about nine in ten accuracies lay inside the 90% one.",
        "No estimator detects confident mistakes. A value outside its interval means that the estimator is biased on the reference.",
        "",
        *performance_tables(reference, window),
    ]


def performance_tables(reference: Reference, window: WindowEstimate) -> list[str]:
    """Return the metrics and the class mix of one window as text tables."""
    metrics, mix = compared(reference, window)
    if not metrics:
        return ["No metrics beyond accuracy: the reference is of an older version; run `cpcmon calibrate` again."]
    lines, classes = value_lines(reference.calibration.intervals.level), reference.classes
    found = ["expected performance", "", *table(classes, metrics, lines)]
    mixed = mix_table(classes, mix, metrics, lines)
    if mixed:
        found += ["", f"class mix, {IF_ONLY}", "", *mixed]
    return [*found, "", *notes(classes, metrics, mixed=bool(mixed))]


def performance_series(reference: Reference, windows: Sequence[WindowEstimate], watched: Sequence[str]) -> list[str]:
    """Return the metrics of each window as text tables: of the watched classes, else the macro average."""
    each = [compared(reference, window)[0] for window in windows]
    first = next((metrics for metrics in each if metrics), None)
    if first is None:
        return []
    decision, lines = reference.calibration.decision, list[str]()
    chosen: list[int | None] = [reference.classes.index(name) for name in dict.fromkeys(watched)]
    if not chosen:
        chosen = [decision.index if decision.by is DecidedBy.THRESHOLD else None]
    for of_class in chosen:
        columns = [Target(metric, None if metric is Metric.AUROC else of_class) for metric in SHORT]
        columns = [target for target in columns if target in first]
        name = MACRO if of_class is None else reference.classes[of_class]
        lines += ["", f"{name} per window; intervals, other classes and the class mix: --output csv or json", ""]
        lines.append(f"{'window':>9}" + "".join(f"{SHORT[target.metric]:>13}" for target in columns))
        own = ("–" if (value := first[target].reference) is None else f"{value:.3f}" for target in columns)
        lines.append(f"{'reference':>9}" + "".join(f"{one:>13}" for one in own))
        for number, metrics in enumerate(each, 1):
            found = [metrics[target].value if metrics else None for target in columns]
            cells = (CANNOT_SAY if value is None else f"{value:.3f}" for value in found)
            lines.append(f"{number:>9}" + "".join(f"{one:>13}" for one in cells))
    return lines


def as_series(reference: Reference, windows: Sequence[WindowEstimate]) -> list[str]:
    """Return the headline of each window as a text table with a drawing."""
    numbers, width = reference.calibration, 40
    lines = [
        f"{numbers.headline} per window; reference accuracy {numbers.accuracy:.3f} ({reference.title})",
        "",
        (
            f"{'window':>6} {'records':>8} {'value':>6}  {f'{100 * numbers.intervals.level:g}% interval':<15} {'90% field':<15}"
            f" {'disagr.':>7}  0{'':{width - 2}}1"
        ),
    ]
    for number, window in enumerate(windows, 1):
        result = window[headline_in(window)]
        disagreement = "      –" if window.disagreement is None else f"{window.disagreement:7.3f}"
        field = window.field[-1] if window.field else None
        drawn = _drawn(result, field, numbers.accuracy, width)
        cells = f"{_cells(result)} {_span(field):<15}"
        lines.append(f"{number:>6} {window.records:>8,} {cells} {disagreement}  {drawn}".rstrip())
    meanings = "= interval, - field interval, o value, | reference accuracy. All estimators: --output csv or json."
    return [*lines, "", meanings]


def _field_line(window: WindowEstimate) -> str:
    field = by_level(window.field)
    if field is None:
        return "field interval: cannot say, the reference is of an older version; run `cpcmon calibrate` again"
    return f"field interval of {HEADLINE}: " + ", ".join(f"{level}% {_span(ends)}" for level, ends in field.items())


def _cells(result: Result) -> str:
    if not isinstance(result, Estimate):
        return f"{'–':>6}  {result.why.value:<15}"
    return f"{result.accuracy:6.3f}  {_span(result.interval):<15}"


def _span(ends: tuple[float, float] | None) -> str:
    return "" if ends is None else f"{ends[0]:.3f} – {ends[1]:.3f}"


def _set_cells(sets: PredictionSets) -> str:
    return f"{sets.mean_size:6.2f}  {f'{sets.empty_share:.1%}':<15}"


def _drawn(result: Result, field: Interval | None, accuracy: float, width: int) -> str:
    if not isinstance(result, Estimate):
        return ""
    cells = [" "] * width

    def place(share: float) -> int:
        return min(width - 1, int(share * width))

    for interval, sign in ((field, "-"), (result.interval, "=")):
        if interval is not None:
            for cell in range(place(interval.lower), place(interval.upper) + 1):
                cells[cell] = sign
    cells[place(accuracy)] = "|"
    cells[place(result.accuracy)] = "o"
    return "".join(cells)


def _baseline(reference: Reference, segment: Segment) -> dict[str, Any]:
    """Return what the estimate of a segment is compared with, as JSON."""
    numbers = reference.calibration
    if numbers.segments is None or segment not in numbers.segments:
        return {"kind": "reference", "accuracy": numbers.accuracy, "records": numbers.records}
    own = numbers.segments[segment]
    return {"kind": "labelled", "accuracy": own.accuracy, "records": own.records}


def _segments_table(reference: Reference, segments: Mapping[Segment, WindowEstimate], minimum: int) -> str:
    numbers = reference.calibration
    interval = f"{100 * numbers.intervals.level:g}% interval"
    lines = [
        f"{numbers.headline} per segment; reference accuracy {numbers.accuracy:.3f} ({reference.title})",
        "",
        f"{'segment':<30} {'records':>8} {'value':>6}  {interval:<15} {'90% field':<15} {'baseline':>8}  of records",
    ]
    for segment, window in segments.items():
        own, result = _baseline(reference, segment), window[headline_in(window)]
        kind = f"{own['records']:,} labelled" if own["kind"] == "labelled" else "the whole reference"
        cells = f"{_cells(result)} {_span(window.field[-1] if window.field else None):<15}"
        lines.append(f"{name_of(segment)[:30]:<30} {window.records:>8,} {cells} {own['accuracy']:>8.3f}  {kind}")
    few = sum(window.records < minimum for window in segments.values())
    lines += [
        "",
        "Estimates of segments with a labelled baseline are corrected by their bias on it. The daemon compares the others",
        "with their own first records, not with the whole reference: docs/baselines.md.",
    ]
    lines += [f"{few:,} with fewer than {minimum:,} records: --minimum-records lowers the minimum"] if few else []
    return "\n".join(lines) + "\n"


def _segments_json(reference: Reference, segments: Mapping[Segment, WindowEstimate], minimum: int) -> str:
    objects = [
        {"segment": dict(segment), "baseline": _baseline(reference, segment)} | as_object(reference, window, minimum)
        for segment, window in segments.items()
    ]
    return json.dumps({"segments": objects}, indent=1, allow_nan=False) + "\n"


def _segments_csv(reference: Reference, segments: Mapping[Segment, WindowEstimate], _: int) -> str:
    text = io.StringIO()
    keys = ["segment", "records", "estimator", "value", "lower", "upper", "reason", "baseline", "baseline_kind"]
    writer = csv.DictWriter(text, keys, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    for segment, window in segments.items():
        own = _baseline(reference, segment)
        known = {"segment": name_of(segment), "baseline": own["accuracy"], "baseline_kind": own["kind"]}
        for name, result in window.estimators.items():
            writer.writerow(known | _answer_object(result) | {"records": window.records, "estimator": name})
    return text.getvalue()


_SEGMENT_FORMS = {"table": _segments_table, "json": _segments_json, "csv": _segments_csv}
