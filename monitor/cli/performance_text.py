"""Metrics beyond accuracy and the class mix, as the offline commands print them: text and JSON."""

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from monitor.core.calibration import WindowEstimate, or_none
from monitor.core.estimate import Interval
from monitor.core.performance import MOST_SHOWN, Metric, MixedShare, Performance, Target
from monitor.reference.offline import Compared
from monitor.reference.reference import Reference

Metrics = Mapping[Target, Compared]

SHORT = {
    Metric.SENSITIVITY: "sensitivity",
    Metric.SPECIFICITY: "specificity",
    Metric.PPV: "PPV",
    Metric.NPV: "NPV",
    Metric.F1: "F1",
    Metric.AUROC: "AUROC",
}
MACRO = "macro average"
IF_ONLY = "if nothing but the class mix changed"
CANNOT_SAY = "cannot say"
_FIRST, _COLUMN, _WIDTH = 15, 17, 100


def compared(reference: Reference, window: WindowEstimate) -> tuple[Metrics, list[Compared]]:
    """Return the metrics of a window and its class mix, beside the reference's own; empty for an older reference."""
    kept = reference.calibration.performance
    if kept is None:
        return {}, []
    own = kept.own.values([one.target for one in window.performance])[0][:, 0]
    metrics = {
        one.target: Compared(one, None, or_none(value)) for one, value in zip(window.performance, own, strict=True)
    }
    shares = (kept.cases[: len(window.class_mix)] / kept.records).tolist()
    return metrics, [Compared(one, None, share) for one, share in zip(window.class_mix, shares, strict=True)]


def as_objects(classes: Sequence[str], metrics: Metrics, *, labelled: bool = False) -> list[dict[str, Any]]:
    """Return metrics as JSON; with labels, with their errors."""
    found = []
    for (metric, of_class), one in metrics.items():
        named: dict[str, Any] = {"metric": metric.value, "class": None if of_class is None else classes[of_class]}
        named |= _bounds_object(one)
        if isinstance(one.estimate, Performance):
            named |= {"cases": one.estimate.cases, "why": None if one.estimate.why is None else one.estimate.why.value}
        found.append(named | _beside_object(one, labelled=labelled))
    return found


def mix_objects(classes: Sequence[str], mix: Sequence[Compared], *, labelled: bool = False) -> list[dict[str, Any]]:
    """Return a class mix as JSON."""
    return [
        {"class": name} | _bounds_object(one) | _beside_object(one, labelled=labelled)
        for name, one in zip(classes, mix, strict=False)
    ]


def _bounds_object(one: Compared) -> dict[str, float | None]:
    interval = interval_of(one)
    lower, upper = (None, None) if interval is None else interval
    return {"value": one.value, "lower": lower, "upper": upper}


def _beside_object(one: Compared, *, labelled: bool) -> dict[str, float | None]:
    if not labelled:
        return {"reference": one.reference}
    return {
        "reference": one.reference,
        "realised": one.realised,
        "error": one.error,
        "reference_error": one.reference_error,
    }


def interval_of(one: Compared) -> Interval | None:
    """Return the interval of an estimate."""
    return one.estimate.interval if isinstance(one.estimate, (Performance, MixedShare)) else None


Line = tuple[str, Callable[[Compared], str]]
"""The name of a line under a class, and its cells; the first line has the name of the class."""


def _span(one: Compared) -> str:
    interval = interval_of(one)
    return "" if interval is None else f"{interval.lower:.3f} – {interval.upper:.3f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def value_lines(level: float) -> list[Line]:
    """Return the lines of an estimate."""
    return [
        ("", lambda one: CANNOT_SAY if one.value is None else _share(one.value)),
        (f"{100 * level:g}% interval", _span),
        ("reference", lambda one: _share(one.reference)),
    ]


def error_lines() -> list[Line]:
    """Return the lines that compare an estimate with the realised value."""
    return [("realised", lambda one: _share(one.realised)), ("error", errors_text)]


def errors_text(one: Compared) -> str:
    """Return the error in points, and in brackets that of repeating the reference."""
    return f"{points(one.error)} ({points(one.reference_error)})"


def points(ratio: float | None) -> str:
    """Return an error in points."""
    return "–" if ratio is None else f"{100 * ratio:.1f}"


def table(classes: Sequence[str], metrics: Metrics, lines: Sequence[Line]) -> list[str]:
    """Return metrics as a table: a few lines for each class, a column for each metric."""
    columns = [metric for metric in SHORT if metric is not Metric.AUROC]
    rows = [_row("class", [SHORT[metric] for metric in columns])]
    for of_class in dict.fromkeys(target.of_class for target in metrics if target.metric is not Metric.AUROC):
        name = MACRO if of_class is None else classes[of_class]
        rows += _block(name, [metrics[Target(metric, of_class)] for metric in columns], lines)
    if (auroc := metrics.get(Target(Metric.AUROC))) is not None:
        rows += _block(SHORT[Metric.AUROC], [auroc], lines)
    return rows


def mix_table(classes: Sequence[str], mix: Sequence[Compared], metrics: Metrics, lines: Sequence[Line]) -> list[str]:
    """Return a class mix as a table: a line for each class whose metrics are shown."""
    shown = shown_classes(metrics)
    if not mix or not shown:
        return []
    heading = _row("class", ["share", *(name for name, _ in lines[1:])])
    return [heading, *(_row(classes[one], [cell(mix[one]) for _, cell in lines]) for one in shown)]


def shown_classes(metrics: Metrics) -> list[int]:
    """Return the classes that have metrics of their own."""
    return list(dict.fromkeys(target.of_class for target in metrics if target.of_class is not None))


def _block(name: str, cells: Sequence[Compared], lines: Sequence[Line]) -> list[str]:
    titles = [_fitting(name), *(f"  {title}" for title, _ in lines[1:])]
    return [_row(title, [cell(one) for one in cells]) for title, (_, cell) in zip(titles, lines, strict=True)]


def _row(title: str, cells: Iterable[str]) -> str:
    return f"{_fitting(title):<{_FIRST}} {''.join(f'{cell:<{_COLUMN}}' for cell in cells)}".rstrip()


def _fitting(text: str) -> str:
    shown = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
    return shown if len(shown) <= _FIRST else f"{shown[: _FIRST - 1]}…"


def mean_errors(found: Sequence[Compared]) -> tuple[float, float]:
    """Return the mean error of estimates, and that of repeating the reference; all must have both."""
    return fmean(one.error or 0.0 for one in found), fmean(one.reference_error or 0.0 for one in found)


def notes(classes: Sequence[str], metrics: Metrics, *, mixed: bool) -> list[str]:
    """Return what the reader of a table has to know, in lines that fit a terminal."""
    sentences = [
        (
            "PPV and NPV are the positive and the negative predictive value. All assume that probabilities mean what they"
            " meant on the reference: confident mistakes stay invisible. Intervals are about chance only."
        )
    ]
    if mixed:
        sentences.append(
            f"The class mix is right {IF_ONLY}; under real shifts it was off by 17 to 23 points on average."
        )
    if any(one.value is None for one in metrics.values()):
        sentences.append(f"{CANNOT_SAY}: too few such records are expected in the window, or were in the reference.")
    if len(classes) > MOST_SHOWN:
        sentences.append(f"More than {MOST_SHOWN} classes: --watch-class NAME shows one; averages are over all.")
    return [line for sentence in sentences for line in textwrap.wrap(sentence, _WIDTH)]


def metric_rows(
    classes: Sequence[str], metrics: Metrics, mix: Sequence[Compared], *, labelled: bool
) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of a table for a page: a row for each metric and class."""
    head = ["Metric", "Class", "Estimate", "Interval", "Reference"]
    if labelled:
        head += ["Realised", "Error", "Error of repeating the reference"]
    named = [
        (SHORT[metric], ("" if metric is Metric.AUROC else MACRO) if of_class is None else classes[of_class], one)
        for (metric, of_class), one in metrics.items()
    ]
    named += [("class mix", classes[one], mix[one]) for one in shown_classes(metrics) if mix]
    rows = []
    for metric, name, one in named:
        cells = [
            metric,
            name,
            CANNOT_SAY if one.value is None else _share(one.value),
            _span(one),
            _share(one.reference),
        ]
        if labelled:
            cells += [_share(one.realised), points(one.error), points(one.reference_error)]
        rows.append(cells)
    return head, rows
