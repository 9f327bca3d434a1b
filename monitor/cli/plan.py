"""`cpcmon plan`: how soon a drop of the accuracy is noticed, which drops cannot be, and the alert to paste."""

import argparse
import json
import math
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from monitor.cli.inputs import (
    add_decision_field,
    add_input_options,
    check_decision_field,
    check_output,
    read_batch,
)
from monitor.cli.parser import as_path
from monitor.cli.performance_plot import BAND, BLUE, INK, QUIET, WIDTH, Part, printable
from monitor.cli.plot import check, write
from monitor.cli.progress_bar import progress_bar
from monitor.core.change import FEWEST_BLOCKS, TOLERANCE, Detector, MemberValues
from monitor.errors import InvalidReference, Problem, UsageError
from monitor.reference.delays import (
    DROPS,
    HORIZON_SECONDS,
    MOST_PER_EVALUATION,
    Delay,
    Known,
    Noticed,
    OwnStream,
    Replayed,
    Setup,
    labelled_records,
    replay_drop,
)
from monitor.reference.reference import NO_ADAPTIVE, Reference
from monitor.settings.kinds import seconds, seconds_per_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

HEADING = "How soon is a drop of the accuracy noticed?"
_RATE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?/ ?(day|d|hour|h|minute|min|m|second|s)")
_MOST_WINDOWS = 1_000_000
_TICKS = ((60.0, "1m"), (3600.0, "1h"), (86400.0, "1d"), (HORIZON_SECONDS, "90d"))
_EASY = 2.0 / 3.0
"""The largest tolerance, as a share of a drop, at which it is noticed in good time."""


def register(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.description = (
        "Say how many records and how much time pass until a drop of the accuracy by 3, 5, 10 and 20 points is noticed, by"
        " an alert of type change and by rules on windows, and which drops cannot be noticed. Records of the reference, or"
        " of your own stream, are replayed with more and more uncertain ones. Prints the `alerts` section to paste."
    )
    parser.epilog = """\
examples:
  cpcmon plan --reference density.ref --every 60s --rate 2000/day --windows 50
  cpcmon plan --reference density.ref --rate 2000/day --history outputs.jsonl --plot plan.svg
"""
    parser.add_argument(
        "--reference", type=as_path, required=True, metavar="FILE", help="reference made by `cpcmon calibrate`"
    )
    parser.add_argument(
        "--rate",
        required=True,
        metavar="RECORDS/TIME",
        help="records of one window, of the whole model or of one site: 2000/day, 50/h or 3/min",
    )
    parser.add_argument("--every", default="60s", metavar="TIME", help="time between evaluations")
    parser.add_argument(
        "--windows", type=int, default=1, metavar="N", help="the whole model, plus the most segments that it may have"
    )
    parser.add_argument(
        "--false-alarms", default="1 per 90d", metavar="N per TIME", help="the most that all windows together may raise"
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        metavar="SHARE",
        help=f"a drop up to this is not worth an alarm: 0.02 is two points (default: {TOLERANCE:g}, or what is needed)",
    )
    parser.add_argument(
        "--history", type=as_path, metavar="FILE", help="records of your own stream, in the order in which they came"
    )
    parser.add_argument("--plot", type=as_path, metavar="FILE", help="plot the delays: .svg, .png or .html")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_decision_field(add_input_options(parser, labels=False))
    parser.set_defaults(run=run)


@dataclass(frozen=True, slots=True)
class Stream:
    """What the operator's own stream says."""

    name: str
    records: int
    accuracy: float
    spread: tuple[float, float] | None
    """The tolerance that it allows as a baseline of its own, and how far its mean wanders; None if it is too short."""
    alarms: tuple[int, ...]
    """After how many records it would have alarmed, as it is."""
    quiet: float | None
    """A tolerance at which it would not have; None if none was found."""


@dataclass(frozen=True, slots=True)
class Plan:
    """All that is printed."""

    reference: Reference
    setup: Setup
    smallest: float
    """The tolerance that the reference allows."""
    asked: float | None
    stream: Stream | None
    healthy: Replayed
    drops: tuple[tuple[float, Replayed | None], ...]


def run(options: argparse.Namespace) -> int:
    """Read, replay and print."""
    rate, every = _rate(options.rate), seconds(options.every, "--every")
    between = seconds_per_time(options.false_alarms, "--false-alarms")
    if not 1 <= options.windows <= _MOST_WINDOWS:
        raise UsageError(Problem("--windows", f"a number from 1 to {_MOST_WINDOWS:,}", str(options.windows)))
    if options.tolerance is not None and not 0.0 < options.tolerance < 1.0:
        raise UsageError(Problem("--tolerance", "a share above 0 and below 1, such as 0.02", str(options.tolerance)))
    if options.plot:
        check(options.plot)
        check_output("--plot", options.plot, *(one for one in (options.reference, options.history) if one))
    reference = Reference.load(options.reference)
    if reference.calibration.adaptive_weight is None:
        raise InvalidReference(f"{options.reference}: {NO_ADAPTIVE}")
    for sentence in reference.warnings().values():
        print(f"{options.reference}: warning: {sentence}", file=sys.stderr)
    plan = _planned(options, reference, Setup(every, rate, options.windows, between, 0.0))
    if options.plot:
        page = {"command": "cpcmon plan", "tables": [], "performance": [], "text": "\n".join(as_text(plan))}
        write(options.plot, [_drawn(plan)], HEADING, page)
    print(json.dumps(as_object(plan), indent=1, allow_nan=False) if options.json else "\n".join(as_text(plan)))
    return 0


def _planned(options: argparse.Namespace, reference: Reference, setup: Setup) -> Plan:
    """Replay the reference, or the operator's own stream."""
    members = MemberValues(reference.calibration)
    smallest, wanted, history = members.smallest_tolerance, members.smallest_tolerance, None
    if options.history:
        check_decision_field(options, reference.calibration.decision, reference.classes)
        records = read_batch(options, options.history, reference.classes).records
        history = OwnStream(reference, records, str(options.history))
        spread = history.spread(members, setup)
        # What a person asks for is used, unless the reference does not allow it.
        wanted = smallest + (spread[1] if spread and options.tolerance is None else 0.0)
    tolerance = math.ceil(1000.0 * Detector(tolerance=options.tolerance).effective(wanted) - 1e-9) / 1000.0
    setup = Setup(setup.every_seconds, setup.records_per_second, setup.windows, setup.between_seconds, tolerance)
    source: Known | OwnStream = Known(reference) if history is None else history
    stream = None
    with progress_bar("replaying") as progress:
        if history is not None:
            alarms = history.alarms(members, setup, progress)
            quiet = next((one for one, raised in alarms.items() if not raised), None)
            stream = Stream(
                options.history.name, len(records), history.accuracy, spread, tuple(alarms[tolerance]), quiet
            )
        found = []
        for place, drop in enumerate((0.0, *DROPS)):

            def partly(share: float, place: int = place) -> None:
                progress((place + share) / (1 + len(DROPS)))

            found.append(replay_drop(reference, source, setup, drop, partly))
            partly(1.0)
    healthy = found[0]
    assert healthy is not None  # noqa: S101 - no drop is always possible
    return Plan(
        reference, setup, smallest, options.tolerance, stream, healthy, tuple(zip(DROPS, found[1:], strict=True))
    )


def _rate(text: str) -> float:
    """Return records per second."""
    found = _RATE.fullmatch(text.strip().replace(",", ""))
    if found is None or float(found.group(1)) == 0.0:
        raise UsageError(Problem("--rate", "a number per time such as 2000/day, 50/h or 3/min", repr(text)))
    return float(found.group(1)) / seconds(f"1{found.group(2)[0]}", "--rate")


def _points(share: float) -> str:
    share = max(share, 1e-4)
    return f"{100.0 * share:.2g} point{'' if round(100 * share, 6) == 1 else 's'}"


def _time(duration: float) -> str:
    """Format a duration for people."""
    for unit, length in (("day", 86400.0), ("hour", 3600.0), ("minute", 60.0)):
        if duration >= 2.0 * length or unit == "minute":
            return _plural(max(1, round(duration / length)), unit)
    raise AssertionError


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _named(rule: Noticed) -> str:
    if rule.window is None:
        return "type: change"
    return f"drop: {rule.rule.drop:.2f}, on: {rule.rule.on}, window {rule.window:,}"


def _delay(found: Delay, replayed: Replayed) -> str:
    if math.isinf(found.records):
        return f"not within {_time(replayed.seconds)}"
    return f"{found.records:>7,.0f} records, {_time(found.seconds)}"


def _cannot(plan: Plan, drop: float, replayed: Replayed | None) -> str | None:
    """Return why a drop cannot be noticed by the detector; None if it can."""
    if drop <= plan.setup.tolerance:
        return f"it is within the tolerance of {_points(plan.setup.tolerance)}"
    if replayed is not None and math.isinf(replayed.rules[0].half.records):
        return f"not within {_time(replayed.seconds)} at this rate"
    return None


def as_text(plan: Plan) -> list[str]:
    """Return the plan as sentences and tables."""
    numbers, setup = plan.reference.calibration, plan.setup
    per_day = setup.records_per_second * 86400.0
    together = f", in all {setup.windows:,} windows together" if setup.windows > 1 else ""
    lines = [
        HEADING,
        f"Model {plan.reference.title}: accuracy {numbers.accuracy:.3f} on {numbers.records:,} labelled reference records.",
        f"One window receives {per_day:,.0f} records a day. An evaluation every {_time(setup.every_seconds).removeprefix('1 ')}.",
        "",
        *_tolerance_lines(plan),
        *_stream_lines(plan),
        "",
        (
            f"False alarms: at most one in {_time(setup.between_seconds)}{together}. So the evidence"
            f" of a change must reach 10^{math.log10(setup.budget):.1f}."
        ),
        "",
        f"{'':<40} {'half of such drops':<30} nine in ten such drops",
        f"{'':<40} {'are noticed within':<30} are noticed within",
    ]
    for drop, replayed in plan.drops:
        lines.append(f"drop of {_points(drop)}")
        if replayed is None:
            lines.append("  cannot be replayed: there are not enough uncertain records for it")
            continue
        for rule in replayed.rules:
            if rule.window is None and drop <= setup.tolerance:
                lines.append(f"  {_named(rule):<38} cannot detect: within the tolerance")
                continue
            half, most = (_delay(one, replayed) for one in (rule.half, rule.most))
            lines.append(f"  {_named(rule):<38} {half:<30} {most}".rstrip())
    lines.append(f"nothing has changed, for {_time(plan.healthy.seconds)}")
    for rule in plan.healthy.rules:
        raised = f"a false alarm in {rule.share:.0%} of replays of one window"
        if rule.window is None:
            raised = f"at most one false alarm in {_time(setup.between_seconds)}{together}"
            if plan.stream is not None and plan.stream.alarms:
                raised = f"your stream raised {_plural(len(plan.stream.alarms), 'alarm')}: see above"
        lines.append(f"  {_named(rule):<38} {raised}")
    return [*lines, "", *_meaning(plan), "", "Add to the model in the configuration:", "", *alerts_section(plan)]


def _tolerance_lines(plan: Plan) -> list[str]:
    numbers, tolerance = plan.reference.calibration, plan.setup.tolerance
    lines = [f"Tolerance: {_points(tolerance)}. A smaller drop raises no alarm."]
    lines.append(
        f"  The reference allows {_points(plan.smallest)} or more: by so much may chance have moved the accuracy of"
        f" {numbers.records:,} labelled records."
    )
    if plan.asked is not None and plan.asked < tolerance:
        lines.append(f"  You asked for {_points(plan.asked)}, which is less than the reference allows.")
    return lines


def _stream_lines(plan: Plan) -> list[str]:
    stream, accuracy = plan.stream, plan.reference.calibration.accuracy
    if stream is None:
        return []
    lines = []
    if stream.spread is None:
        lines.append(
            f"  Your stream fills fewer than {FEWEST_BLOCKS} evaluations: too short to say how far its mean wanders."
        )
    elif stream.spread[1] == 0.0:
        lines.append("  The mean of your stream does not wander by more than chance: nothing to add.")
    else:
        added = f"add {_points(stream.spread[1])}" + (
            "" if plan.asked is None else ". You chose the tolerance yourself: without this, expect false alarms"
        )
        lines.append(f"  The mean of your stream wanders by more than chance while nothing is wrong: {added}.")
    if stream.spread is not None:
        lines.append(
            f"  Compared with its own first records, as segments without labels are, it allows {_points(stream.spread[0])} or more."
        )
    apart = stream.accuracy - accuracy
    side = f"{_points(abs(apart))} {'above' if apart > 0.0 else 'below'}" if abs(apart) >= 0.0005 else "as on"
    lines += [
        "",
        (
            f"Your stream {printable(stream.name)}: {stream.records:,} records, estimated accuracy {stream.accuracy:.3f},"
            f" {side} the reference."
        ),
    ]
    if not stream.alarms:
        return [*lines, "  As it is, it would have raised no alarm."]
    quiet = "" if stream.quiet is None else f" With a tolerance of {_points(stream.quiet)} it would have raised none."
    return [
        *lines,
        f"  As it is, it would have raised {_plural(len(stream.alarms), 'alarm')}, the first after {stream.alarms[0]:,} records.{quiet}",
        "  If nothing was wrong then: send records in the order in which they were made, use group_by if several are of one",
        "  exam, choose a larger tolerance, or give the stream a baseline of its own.",
    ]


def _meaning(plan: Plan) -> list[str]:
    """Return what to conclude, in plain sentences."""
    numbers, setup = plan.reference.calibration, plan.setup
    lines = ["What it means"]
    cannot = [(drop, why) for drop, replayed in plan.drops if (why := _cannot(plan, drop, replayed)) is not None]
    lines += [f"- An alert of type change cannot detect a drop of {_points(drop)}: {why}." for drop, why in cannot]
    for drop in DROPS[:2]:
        needed = labelled_records(numbers, _EASY * drop)
        enough = "you have enough" if numbers.records >= needed else f"you have {numbers.records:,}"
        lines.append(
            f"- To notice a drop of {_points(drop)} in good time, the tolerance should be at most {_points(_EASY * drop)}."
            f" That takes {needed:,} labelled reference records: {enough}."
        )
    if setup.records_per_second * setup.every_seconds > MOST_PER_EVALUATION:
        lines.append(
            f"- Of each evaluation, {MOST_PER_EVALUATION:,} records are replayed: at your rate it takes less time."
        )
    return [
        *lines,
        "- A segment that receives a tenth of the records needs about ten times as long: run this again with its rate.",
        "- Drops are replayed as more records on which the model is unsure. Real ones may take longer: of eight, the slowest four times.",
        "- Confident mistakes do not show in the probabilities: no rule notices them.",
    ]


def alerts_section(plan: Plan) -> list[str]:
    """Return the `alerts` section as YAML."""
    return [
        "alerts:",
        "  - name: accuracy_drop",
        "    type: change",
        f"    tolerance: {plan.setup.tolerance:g}",
        f"    false_alarms: {_per(plan.setup.between_seconds)}",
        "    direction: down",
        "    severity: critical",
    ]


def _per(between: float) -> str:
    for unit, length in (("d", 86400.0), ("h", 3600.0), ("m", 60.0)):
        if between % length == 0.0:
            return f"1 per {between / length:g}{unit}"
    return f"1 per {max(1, round(between))}s"


def as_object(plan: Plan) -> dict[str, Any]:
    """Return the plan as JSON."""
    numbers, setup, stream = plan.reference.calibration, plan.setup, plan.stream
    return {
        "model": plan.reference.model,
        "version": plan.reference.version,
        "accuracy": numbers.accuracy,
        "labelled_records": numbers.records,
        "every_seconds": setup.every_seconds,
        "records_per_day": setup.records_per_second * 86400.0,
        "windows": setup.windows,
        "false_alarm_seconds": setup.between_seconds,
        "evidence_threshold": math.log10(setup.budget),
        "tolerance": setup.tolerance,
        "smallest_tolerance": plan.smallest,
        "history": None
        if stream is None
        else {
            "records": stream.records,
            "estimated_accuracy": stream.accuracy,
            "smallest_tolerance": stream.spread and stream.spread[0],
            "wander": stream.spread and stream.spread[1],
            "alarms_after_records": stream.alarms,
            "tolerance_without_alarm": stream.quiet,
        },
        "healthy": _replayed_object(plan, 0.0, plan.healthy),
        "drops": [_replayed_object(plan, drop, replayed) for drop, replayed in plan.drops],
        "labelled_records_needed": {f"{drop:g}": labelled_records(numbers, _EASY * drop) for drop, _ in plan.drops},
        "alerts": "\n".join(alerts_section(plan)) + "\n",
    }


def _replayed_object(plan: Plan, drop: float, replayed: Replayed | None) -> dict[str, Any]:
    def delay(found: Delay) -> dict[str, float | None]:
        return {key: None if math.isinf(one) else one for key, one in found._asdict().items()}

    return {
        "drop": drop,
        "replayed_seconds": None if replayed is None else replayed.seconds,
        "cannot_detect": _cannot(plan, drop, replayed) if drop else None,
        "rules": [
            {
                "type": str(rule.rule.kind),
                "drop": rule.rule.drop,
                "on": None if rule.window is None else str(rule.rule.on),
                "window": rule.window,
                "median": delay(rule.half),
                "ninety_percent": delay(rule.most),
                "share_with_alarm": rule.share,
            }
            for rule in (() if replayed is None else replayed.rules)
        ],
    }


def _drawn(plan: Plan) -> Part:
    """Return the delays: a panel for each drop, a row for each rule, time from left to right."""
    names = [_named(rule) for rule in plan.healthy.rules]
    left, right, top, side, bottom = 2.55, 1.0, 1.35, 0.26 * len(names), 0.85
    height = top + side + bottom
    width = (WIDTH - left - right) / len(plan.drops)

    def draw(figure: "SubFigure") -> None:
        figure.text(0.2 / WIDTH, 1 - 0.2 / height, HEADING, fontsize=12, fontweight="bold", va="top")
        per_day = plan.setup.records_per_second * 86400.0
        text = (
            f"{printable(plan.reference.title)}, {per_day:,.0f} records a day, tolerance {_points(plan.setup.tolerance)}"
            "\nA dot: half of such drops are noticed. The end of its line: nine in ten."
        )
        figure.text(0.2 / WIDTH, 1 - 0.5 / height, text, color=QUIET, va="top")
        for number, (drop, replayed) in enumerate(plan.drops):
            place = ((left + number * width) / WIDTH, bottom / height, (width - 0.15) / WIDTH, side / height)
            axes = figure.add_axes(place, xlim=(_TICKS[0][0], _TICKS[-1][0]), ylim=(len(names) - 0.5, -0.5))
            axes.set_xscale("log")
            axes.set_xticks([at for at, _ in _TICKS], [name for _, name in _TICKS], fontsize=7)
            axes.set_xticks([], minor=True)
            # Away from the labels of the next panel.
            axes.get_xticklabels()[0].set_horizontalalignment("left")
            axes.get_xticklabels()[-1].set_horizontalalignment("right")
            axes.set_yticks(range(len(names)), names if number == 0 else [])
            axes.tick_params(axis="y", length=0, labelcolor=INK)
            axes.spines["left"].set_visible(False)
            axes.grid(color=BAND, linewidth=0.8)
            axes.set_title(f"drop of {_points(drop)}", fontsize=9, loc="left")
            for row, rule in enumerate(() if replayed is None else replayed.rules):
                _row(axes, row, rule)
        for row, rule in enumerate(plan.healthy.rules):
            share = f"≤ 1 in {_time(plan.setup.between_seconds)}" if rule.window is None else f"{rule.share:.0%}"
            figure.text(1 - 0.9 / WIDTH, (bottom + side - 0.26 * (row + 0.5)) / height, share, va="center", fontsize=8)
        false = f"false alarm\nin {_time(plan.healthy.seconds)}"
        figure.text(1 - 0.9 / WIDTH, (bottom + side + 0.05) / height, false, va="bottom", fontsize=8)
        figure.text(left / WIDTH, 0.35 / height, "time until the alarm: minutes, hours, days", va="center")

    return Part(height, draw)


def _row(axes: "Axes", row: int, rule: Noticed) -> None:
    colour = BLUE if rule.window is None else QUIET
    half, most = (min(max(one.seconds, _TICKS[0][0]), _TICKS[-1][0]) for one in (rule.half, rule.most))
    if math.isinf(rule.half.seconds):
        axes.text(_TICKS[-1][0], row, "not seen", ha="right", va="center", color=QUIET, fontsize=7)
        return
    axes.plot([half, most], [row, row], color=colour, linewidth=2.0)
    axes.scatter([half], [row], s=24, color=colour, zorder=3, clip_on=False)
