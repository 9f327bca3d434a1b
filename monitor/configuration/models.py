"""The list `models`: what each model is, which records its windows hold, when they are judged and by which alerts."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from monitor.configuration.alerts import read_alert
from monitor.configuration.config import Cron, Every, ModelConfig
from monitor.configuration.kinds import Fault, Kind, Unfit, unfit
from monitor.configuration.number_kinds import Duration, Integer
from monitor.configuration.section import Section
from monitor.configuration.text_kinds import Choice, FilePath, Flag, OneOf, Text
from monitor.configuration.yaml_text import Items, Node
from monitor.core.alerts import Rule
from monitor.core.ensemble import Variants
from monitor.core.estimators import ESTIMATORS
from monitor.core.segments import Segmentation
from monitor.core.threshold_curve import MOST_RECORDS
from monitor.core.window import Bounds
from monitor.decode.layout import Kind as OutputKind

CronProblem = Callable[[str], str | None]
"""Says what is wrong with a crontab line; None when nothing is."""

NAME = Text("a name of letters, digits and . _ -, at most 64", re.compile(r"[A-Za-z0-9_.-]{1,64}"))
_LONGEST = 3660 * 86400.0
_FORGET_SECONDS = 30 * 86400.0
_MOST_ALERTS = 100
_CRON = re.compile(r"[0-9A-Za-z*,/-]+(?: +[0-9A-Za-z*,/-]+){4}")


@dataclass(frozen=True)
class _FieldSets(Kind[tuple[tuple[str, ...], ...]]):
    """Sets of fields that split records: `[[site], [site, scanner]]`, or `[site]` for a single field."""

    word = "list of fields, or of lists of fields"
    expected = "a list of fields, or of lists of fields, such as [[site], [site, scanner]]"
    stand_in = ()

    def read(self, node: Node) -> tuple[tuple[str, ...], ...]:
        """Return the sets."""
        if not isinstance(node, Items):
            raise unfit(node, self.expected)
        sets, faults = [], list[Fault]()
        for place, item in enumerate(node.nodes):
            parts = item.nodes if isinstance(item, Items) else (item,)
            names = []
            for part in parts:
                try:
                    names.append(NAME.read(part))
                except Unfit as error:
                    faults.extend(fault.under(f"[{place}]") for fault in error.faults)
            sets.append(tuple(names))
        if faults:
            raise Unfit(*faults)
        return tuple(sets)

    def show(self, value: tuple[tuple[str, ...], ...]) -> str:
        """Return the sets in brackets."""
        sets = (f"[{', '.join(NAME.show(name) for name in names)}]" for names in value)
        return f"[{', '.join(sets)}]"


def read_model(section: Section, folder: Path, cron_problem: CronProblem | None) -> ModelConfig | None:
    """Return one model; None after a mistake."""
    default = ModelConfig("", None)
    name = section.get("name", NAME)
    version = section.get("version", Text('a text such as "2.1"'), None)
    reference = section.get("reference", FilePath(folder, "the path of a reference file"), None)
    realised = section.get("realised", FilePath(folder, "the path of a file of accuracies"), None)
    kind = section.get("kind", Choice(OutputKind), default.kind)
    bounds = _bounds(section.section("window"))
    segmentation = _segmentation(section)
    evaluate = _evaluate(section.section("evaluate"), cron_problem)
    minimum = section.get("minimum_records", Integer(1, MOST_RECORDS), default.minimum_records)
    if bounds is not None and evaluate is not None:
        _check_together(section, bounds, evaluate)
    model = ModelConfig(
        name=name,
        reference=reference,
        version=version,
        kind=kind,
        bounds=bounds or default.bounds,
        segmentation=segmentation or default.segmentation,
        versions_alike=section.get("any_version", Flag(), default.versions_alike),
        most_ids=section.get("remember_ids", Integer(1, 100_000_000), default.most_ids),
        evaluate=evaluate or default.evaluate,
        minimum_records=minimum,
        stale_after_seconds=section.get("stale_after", Duration(1.0, _LONGEST), None),
        variants=_variants(section.section("estimators")),
        alerts=_alerts(section, segmentation),
        realised=realised,
    )
    return model if section.clean else None


def _bounds(window: Section) -> Bounds | None:
    age = window.get("age", Duration(1.0, _LONGEST), None)
    default = Bounds(records=ModelConfig("", None).bounds.records)
    records = window.get("records", Integer(1, MOST_RECORDS), default.records if age is None else None)
    tolerance = window.get("tolerance", Duration(0.0, 366 * 86400.0), default.tolerance_seconds)
    most = window.get("most_records", Integer(1, MOST_RECORDS), default.most_records)
    if not window.clean:
        return None
    return Bounds(records, age, tolerance, most)


def _segmentation(section: Section) -> Segmentation | None:
    split_by = section.get("segment_by", _FieldSets(), ())
    segments = section.section("segments")
    limit = segments.get("limit", Integer(0, 100_000), Segmentation().most_segments)
    forget = segments.get("forget_after", Duration(60.0, _LONGEST), _FORGET_SECONDS)
    try:
        return Segmentation(split_by, limit, forget)
    except ValueError:
        section.tell("segment_by", "sets of different fields, each set once", _FieldSets().show(split_by))
        return None


def _evaluate(section: Section, cron_problem: CronProblem | None) -> Every | Cron | None:
    cron = section.get("cron", Text('a crontab line such as "*/5 * * * *"'), None)
    every = section.get("every", Duration(1.0, 7 * 86400.0), Every().seconds if cron is None else None)
    if cron is None:
        return None if every is None else Every(every)
    if section.has("every"):
        section.tell("cron", "either every or cron", "both")
        return None
    wrong = (cron_problem or _cron_problem)(cron)
    if wrong is not None:
        section.tell("cron", 'a crontab line such as "*/5 * * * *"', f"{cron[:80]!r}: {wrong}")
        return None
    return Cron(cron)


def _cron_problem(line: str) -> str | None:
    """Look at the form alone; who schedules knows more."""
    return None if _CRON.fullmatch(line) else "it has no five fields of digits, names and * , - /"


def _variants(section: Section) -> Variants:
    found = {
        member.name: section.get(member.name, OneOf(tuple(member.variants)), None)
        for member in ESTIMATORS
        if member.variants
    }
    return {name: variant for name, variant in found.items() if variant is not None}


def _alerts(section: Section, segmentation: Segmentation | None) -> tuple[Rule, ...]:
    rules, lines = [], dict[str, int]()
    for one in section.sections("alerts", most=_MOST_ALERTS):
        rule = read_alert(one, segmentation)
        if rule is None:
            continue
        if rule.name in lines:
            one.tell("name", "each name once in a model", f"{rule.name!r} again, after line {lines[rule.name]}")
        lines.setdefault(rule.name, one.line("name"))
        rules.append(rule)
    return tuple(rules)


def _check_together(section: Section, bounds: Bounds, evaluate: Every | Cron) -> None:
    if bounds.age_seconds is not None and isinstance(evaluate, Every) and bounds.age_seconds < evaluate.seconds:
        show = Duration(0.0, _LONGEST).show
        expected = f"evaluate.every of at most window.age, {show(bounds.age_seconds)}: records would go unseen"
        section.tell("evaluate" if section.has("evaluate") else "window", expected, show(evaluate.seconds))
