"""`cpcmon evaluate`: the paper's Table 1 on the user's own labelled data."""

import argparse
import csv
import io
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from monitor.cli.estimate_command import add_variant_options, add_watch_option
from monitor.cli.inputs import add_decision_options, add_input_options, check_output, decision_of, read_batch
from monitor.cli.parser import as_path
from monitor.cli.performance_text import (
    IF_ONLY,
    SHORT,
    as_objects,
    error_lines,
    mean_errors,
    mix_objects,
    mix_table,
    notes,
    table,
    value_lines,
)
from monitor.cli.plot import check, draw
from monitor.cli.progress_bar import working
from monitor.core.calibration import PAPER
from monitor.core.estimate import ADAPTIVE, CONSENSUS
from monitor.core.estimators import ESTIMATORS, EmptySets
from monitor.core.intervals import DEFAULT_LEVEL
from monitor.errors import UsageError
from monitor.reference.offline import Evaluation, evaluate, shown, variants

_COMBINED = (CONSENSUS, ADAPTIVE)
_PAPER_ROWS = ("ac", "doc", "atc_mc", "atc_ne", "cpc_acc", "cpc_ac")
_COLUMNS = ("without scaling", "with scaling")


def register(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.description = (
        "Estimate the accuracy on a labelled target without its labels, and show each estimator's absolute error in"
        " points; the same for sensitivity, specificity, predictive values, F1, AUROC and the class mix. Several pairs,"
        " such as five training runs, give mean ± standard deviation."
    )
    parser.epilog = """\
examples:
  cpcmon evaluate --source validation.jsonl --target labelled.jsonl --classes fatty,scattered,heterogeneous,dense
  cpcmon evaluate --source validation.csv --target labelled.csv --class-columns 'prob_*' --plot errors.svg
"""
    add = parser.add_argument
    add("--source", type=as_path, nargs="+", required=True, metavar="LABELLED", help="labelled sets to calibrate on")
    add(
        "--target",
        type=as_path,
        nargs="+",
        required=True,
        metavar="LABELLED",
        help="labelled sets to estimate",
    )
    add("--source-labels", type=as_path, nargs="+", metavar="FILE.npy", help="true classes of NPY sources")
    add("--target-labels", type=as_path, nargs="+", metavar="FILE.npy", help="true classes of NPY targets")
    add("--paper", action="store_true", help="the paper's six estimators as printed (absolute DOC, skip)")
    add("--output", choices=list(_FORMS), default="table", help="output format (default: table)")
    add("--plot", type=as_path, metavar="FILE", help="plot estimates against realised values: .svg, .png or .html")
    add_watch_option(parser)
    add_variant_options(parser)
    add_decision_options(parser)
    add_input_options(parser, labels=True)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Evaluate every pair, print the table, draw the plot."""
    sources, targets = options.source, options.target
    if len(sources) not in {1, len(targets)}:
        raise UsageError(
            f"--source: expected one file, or as many as there are targets ({len(targets)}), found {len(sources)}"
        )
    source_labels, target_labels = (
        _one_each(labels, files, option)
        for labels, files, option in (
            (options.source_labels, sources, "--source-labels"),
            (options.target_labels, targets, "--target-labels"),
        )
    )
    if options.paper and (options.doc_absolute or options.empty_sets != EmptySets.TOP):
        raise UsageError("--paper: expected no other variant option, found --doc-absolute or --empty-sets")
    if options.plot:
        check(options.plot)
        check_output("--plot", options.plot, *sources, *targets)
    chosen = PAPER if options.paper else variants(doc_absolute=options.doc_absolute, empty_sets=options.empty_sets)
    pairs = list(zip(sources if len(sources) > 1 else sources * len(targets), targets, strict=True))
    evaluations = []
    for number, (source, target) in enumerate(pairs):
        if number < len(sources):  # one source for all targets is read once
            known = read_batch(options, source, labels=source_labels[number])
            decision = decision_of(options, known.classes)
            shown("--watch-class", known.classes, options.watch_class)  # refuses another class
            classes = () if options.paper else known.classes
        labelled = read_batch(options, target, known.classes, target_labels[number])
        with working(f"evaluating pair {number + 1} of {len(pairs)}"):
            evaluations.append(
                evaluate(
                    known.records, labelled.records, chosen, decision, classes=classes, watched=options.watch_class
                )
            )
    names = _PAPER_ROWS if options.paper else (*(member.name for member in ESTIMATORS), *_COMBINED)
    if options.plot:
        with working("drawing"):
            draw(
                evaluations, names, options.plot, titles=[f"{source.name} → {target.name}" for source, target in pairs]
            )
    print(_FORMS[options.output](pairs, evaluations, rows(evaluations, names)), end="")
    return 0


def _one_each(labels: list[Path] | None, files: list[Path], option: str) -> list[Path] | list[None]:
    if labels is None:
        return [None] * len(files)
    if len(labels) != len(files):
        raise UsageError(f"{option}: expected {len(files)} files, one for each, found {len(labels)}")
    return labels


@dataclass(frozen=True, slots=True)
class Cell:
    """An estimator's absolute error over the pairs, as ratios."""

    errors: tuple[float | None, ...]
    best: bool = False

    @property
    def known(self) -> list[float]:
        """The errors of pairs with an estimate."""
        return [error for error in self.errors if error is not None]

    @property
    def mean(self) -> float | None:
        """Mean error; None unless every pair has an estimate, since the missing ones are the hard ones."""
        return statistics.fmean(self.known) if self.known and len(self.known) == len(self.errors) else None

    @property
    def deviation(self) -> float | None:
        """Sample standard deviation of at least two pairs."""
        return statistics.stdev(self.known) if self.mean is not None and len(self.known) > 1 else None

    def text(self, mark: Callable[[str], str]) -> str:
        """Return the error in points."""
        if self.mean is None:
            return "–"
        spread = "" if self.deviation is None else f" ± {100 * self.deviation:.1f}"
        points = f"{100 * self.mean:.1f}{spread}"
        return mark(points) if self.best else points


Rows = dict[str, tuple[Cell | None, Cell | None]]
"""For each estimator its error without and with scaling; combinations have the second only."""


def rows(evaluations: Sequence[Evaluation], names: Sequence[str]) -> Rows:
    """Collect the errors and mark the best of each column."""
    found: dict[str, list[Cell | None]] = {}
    for name in names:
        forms = (None, name) if name in _COMBINED else (name, f"{name}_ts")
        found[name] = [None if form is None else Cell(tuple(one.error(form) for one in evaluations)) for form in forms]
    for column in range(2):
        means = [cell.mean for cells in found.values() if (cell := cells[column]) and cell.mean is not None]
        for cells in found.values():
            cell = cells[column]
            if cell is not None and cell.mean is not None and cell.mean == min(means):
                cells[column] = Cell(cell.errors, best=True)
    return {name: (cells[0], cells[1]) for name, cells in found.items()}


Pairs = Sequence[tuple[Path, Path]]


def _heading(pairs: Pairs, evaluations: Sequence[Evaluation]) -> list[str]:
    return [
        f"{source} → {target}: source accuracy {one.source_accuracy:.4f}, target accuracy {one.target_accuracy:.4f},"
        f" T {one.temperature:.3f}"
        for (source, target), one in zip(pairs, evaluations, strict=True)
    ]


def _note(evaluations: Sequence[Evaluation]) -> str:
    many = len(evaluations) > 1
    return "absolute error in points" + (f", mean ± standard deviation of {len(evaluations)} pairs" if many else "")


def _table(pairs: Pairs, evaluations: Sequence[Evaluation], by_estimator: Rows) -> str:
    lines = [*_heading(pairs, evaluations), "", f"{'estimator':<22} {_COLUMNS[0]:>16} {_COLUMNS[1]:>16}"]
    for name, cells in by_estimator.items():
        texts = [cell.text(lambda points: f"*{points}") if cell else "" for cell in cells]
        lines.append(f"{name:<22} {texts[0]:>16} {texts[1]:>16}".rstrip())
    lines += ["", f"{_note(evaluations)}; * best in its column"]
    if not any(one.performance for one in evaluations):
        return "\n".join([*lines, ""])
    if len(evaluations) == 1:
        lines += ["", *_performance_tables(evaluations[0])]
    over = "mean over watched classes" if evaluations[0].watched else "mean over classes"
    lines += ["", f"{over:<26} {'error':>16} {'repeating the reference':>24} {'estimates':>16}"]
    for name, error, repeated, count in (one.texts() for one in performance_errors(evaluations)):
        lines.append(f"{name:<26} {error:>16} {repeated:>24} {count:>16}")
    lines += ["", f"{_note(evaluations)}; estimates: those that can be said, of those with a realised value", ""]
    return "\n".join(lines)


def _performance_tables(one: Evaluation) -> list[str]:
    """Return the metrics and the class mix of one pair, with realised values and errors."""
    lines = [*value_lines(DEFAULT_LEVEL), *error_lines()]
    found = ["performance: estimate, reference (the source), realised, error in points (repeating the reference)", ""]
    found += table(one.classes, one.shown, lines)
    mixed = mix_table(one.classes, one.class_mix, one.shown, lines)
    if mixed:
        found += ["", f"class mix, {IF_ONLY}", "", *mixed]
    return [*found, "", *notes(one.classes, one.shown, mixed=bool(mixed))]


class MetricErrors(NamedTuple):
    """The errors of a metric, or of the class mix, by pair: of each the mean over the classes that have an estimate."""

    key: str
    name: str
    error: Cell
    repeated: Cell
    """Of repeating the value of the reference."""
    said: int
    """The estimates that could be said."""
    asked: int
    """The realised values."""

    def texts(self) -> tuple[str, str, str, str]:
        """Return the cells of a table."""
        return self.name, self.error.text(str), self.repeated.text(str), f"{self.said:,} of {self.asked:,}"


def performance_errors(evaluations: Sequence[Evaluation]) -> list[MetricErrors]:
    """Return the errors of each metric, then of the class mix."""
    found = []
    for metric, name in SHORT.items():
        each = [one.of_classes(metric) for one in evaluations]
        said = [[one for one in some if one.error is not None and one.reference_error is not None] for some in each]
        if any(said):
            error, repeated = zip(*(mean_errors(some) for some in said if some), strict=True)
            counts = sum(map(len, said)), sum(map(len, each))
            found.append(MetricErrors(metric.value, name, Cell(error), Cell(repeated), *counts))
    mixes = [pair for one in evaluations if (pair := one.class_mix_errors()) is not None]
    if mixes:
        error, repeated = zip(*mixes, strict=True)
        name = "class mix, total variation"
        found.append(MetricErrors("class_mix", name, Cell(error), Cell(repeated), len(mixes), len(evaluations)))
    return found


def _markdown(pairs: Pairs, evaluations: Sequence[Evaluation], by_estimator: Rows) -> str:
    lines = [*(f"- {line}" for line in _heading(pairs, evaluations)), ""]
    lines += [f"| estimator | {_COLUMNS[0]} | {_COLUMNS[1]} |", "|---|---:|---:|"]
    for name, cells in by_estimator.items():
        texts = [cell.text(lambda points: f"**{points}**") if cell else "" for cell in cells]
        lines.append(f"| `{name}` | {texts[0]} | {texts[1]} |")
    return "\n".join(
        [
            *lines,
            "",
            f"{_note(evaluations).capitalize()}; best in each column in bold.",
            *_performance_markdown(evaluations),
            "",
        ]
    )


def _performance_markdown(evaluations: Sequence[Evaluation]) -> list[str]:
    found = [f"| {' | '.join(one.texts())} |" for one in performance_errors(evaluations)]
    heading = ["", "| mean over classes | error | repeating the reference | estimates |", "|---|---:|---:|---:|"]
    return [*heading, *found] if found else []


def _csv(pairs: Pairs, evaluations: Sequence[Evaluation], by_estimator: Rows) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["pair", "source", "target", "target_accuracy", "estimator", "scaled", "estimate", "error"])
    for number, ((source, target), one) in enumerate(zip(pairs, evaluations, strict=True), 1):
        for name, cells in by_estimator.items():
            for scaled, cell in enumerate(cells):
                if cell is not None:
                    estimate = one.estimates[_form(name, scaled=bool(scaled))]
                    error = cell.errors[number - 1]
                    known = ["", ""] if estimate is None else [estimate, error]
                    writer.writerow([number, source, target, one.target_accuracy, name, scaled, *known])
    return text.getvalue()


def _json(pairs: Pairs, evaluations: Sequence[Evaluation], by_estimator: Rows) -> str:
    document = {
        "pairs": [
            {
                "source": str(source),
                "target": str(target),
                "source_accuracy": one.source_accuracy,
                "target_accuracy": one.target_accuracy,
                "temperature": one.temperature,
                "estimates": dict(one.estimates),
                "disagreement": one.disagreement,
                "performance": as_objects(one.classes, one.shown, labelled=True),
                "class_mix": mix_objects(one.classes, one.class_mix, labelled=True),
            }
            for (source, target), one in zip(pairs, evaluations, strict=True)
        ],
        "errors": {
            name: {
                column: cell and {"mean": cell.mean, "standard_deviation": cell.deviation, "best": cell.best}
                for column, cell in zip(("raw", "scaled"), cells, strict=True)
            }
            for name, cells in by_estimator.items()
        },
        "performance_errors": {
            one.key: {
                "mean": one.error.mean,
                "standard_deviation": one.error.deviation,
                "reference_mean": one.repeated.mean,
                "estimates": one.said,
                "realised": one.asked,
            }
            for one in performance_errors(evaluations)
        },
    }
    return json.dumps(document, indent=1, allow_nan=False) + "\n"


def _form(name: str, *, scaled: bool) -> str:
    return f"{name}_ts" if scaled and name not in _COMBINED else name


_FORMS = {"table": _table, "markdown": _markdown, "csv": _csv, "json": _json}
