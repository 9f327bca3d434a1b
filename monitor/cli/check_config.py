"""`cpcmon check-config`: validate a configuration and show its memory use and alert thresholds."""

import argparse
import math
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from monitor.cli.parser import as_path
from monitor.cli.progress_bar import working
from monitor.config.config import (
    Config,
    Cron,
    LabelOptions,
    ModelConfig,
    SegmentSeries,
    SourceConfig,
    model_options,
    target_of,
)
from monitor.config.reading import read_config
from monitor.config.references import FEW_PARTITIONS, Loaded, forecast, load_models, partition_cost, room_for
from monitor.core.alerts import CHANCE_MARGIN, AlertRule, AlertType
from monitor.core.baselines.comparison import DRIFT_LEAST, DRIFT_MARGIN, BaselineMode
from monitor.core.change import FEWEST_BLOCKS, Direction, smallest_tolerance
from monitor.core.estimate import HEADLINE
from monitor.errors import CpcmonError, UsageError
from monitor.evaluation.crontab import shortest_gap_seconds
from monitor.ingest.model_state import ModelState
from monitor.records.record_schema import Carries
from monitor.reference.reference import Reference
from monitor.settings.kinds import Duration
from monitor.sinks.expected_series import SAMPLE_LIMIT, expected_series
from monitor.state.store import State

if TYPE_CHECKING:  # slow to import
    from monitor.cli.sample import Sample

_time = Duration(0.0, 0.0).show
_WIDEST = 72
"""Column width; longer settings shift their own line only."""


def register(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.description = (
        "Read a configuration as the daemon does, open its references, check that storage.path is writable, and show the"
        " memory use of its windows and the thresholds of its alerts. Exits with 0 if it is valid, or with 2 and every"
        " problem. Run it as the daemon's user. With --sample, also read the first 1,000 or more records of a file and say what the"
        " daemon would do with them; exits with 2 if they are not what configuration and reference expect."
    )
    parser.epilog = (
        "examples:\n  cpcmon check-config config.yaml\n  cpcmon check-config --show config.yaml\n"
        "  cpcmon check-config --sample records.jsonl config.yaml"
    )
    parser.add_argument(
        "--show",
        action="store_true",
        help="first list every setting with its line or as a default; secrets are hidden",
    )
    parser.add_argument(
        "--sample",
        type=as_path,
        metavar="RECORDS",
        help="a file of records, in any format of a source, read with the settings of the source that would read it",
    )
    parser.add_argument(
        "--model", metavar="NAME", help="the model of the sample (default: the one that a record names)"
    )
    parser.add_argument("file", type=as_path, metavar="FILE", help="the configuration")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Check the configuration and print a summary."""
    try:
        config = read_config(options.file, shortest_gap_seconds)
        with working(f"opening the references of {len(config.models)} models"):
            loaded = load_models(config)
        State.check(config.storage.path, allow_network=config.storage.allow_network)
        sample = _sample(config, loaded, options)
    except CpcmonError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    if options.show:
        for line in _listed(config):
            print(line)
    for model, reference in loaded:
        for line in _model_lines(model, reference):
            print(line)
    remarks = list(config.remarks)
    for source in config.sources:
        of_labels = source.carries is Carries.LABELS
        print(f"source {source.name}: {'labels from ' if of_labels else ''}{source.options.describe()}")
        if source.options.sharded and not of_labels:
            print(f"  {_partition_line(source, config, loaded)}")
            remarks.extend(_partition_remarks(source, config, loaded))
    for remark in dict.fromkeys(remarks):
        print(f"remark: {remark}")
    cost, limit, once = forecast(loaded), config.limits.window_bytes, _once(config)
    print(f"all windows{once}: {cost.windows / 1e6:.1f} MB at most, limit {limit / 1e6:.1f} MB")
    print(f"all remembered ids{once}: {cost.ids / 1e6:.1f} MB at most, in addition")
    if cost.kept:
        print(f"all labels, and predictions kept for them{once}: {cost.kept / 1e6:.1f} MB at most, in addition")
    also = "all ids and labels" if cost.kept else "all ids"
    print(
        f"the process{once}: about {cost.process / 1e6:,.0f} MB with full windows, {cost.later / 1e6:,.0f} MB with {also} too;"
        f" of it {cost.evaluation / 1e6:,.0f} MB for evaluation and pages, {cost.program / 1e6:,.0f} MB for the program"
    )
    print(_series_line(config, loaded))
    print(f"{options.file}: valid ({_counts(config)})")
    return 0 if sample is None else _show_sample(sample, options)


def _series_line(config: Config, loaded: Loaded) -> str:
    """Say how many series the metrics page will have, and whether that is too many."""
    count = expected_series(config, loaded)
    line = f"the metrics page: about {count:,} series with all possible segments"
    if count <= SAMPLE_LIMIT:
        return line
    less = "" if config.segment_series is SegmentSeries.HEADLINE else "set metrics.segments to headline, "
    return (
        f"{line}\nwarning: that is more than sampleLimit, {SAMPLE_LIMIT:,}, of the shipped ServiceMonitor, beyond which Prometheus"
        f" drops the whole page: {less}lower segments.limit, run a second cpcmon, or raise sampleLimit"
    )


def _show_sample(sample: "Sample", options: argparse.Namespace) -> int:
    """Print what becomes of a sample; return the exit code."""
    for line in sample.lines:
        print(line)
    if not sample.problems:
        return 0
    problems = f"{sample.problems} problem{'' if sample.problems == 1 else 's'}"
    print(f"{options.sample}: expected records as configured, found {problems}, listed above", file=sys.stderr)
    return CpcmonError.exit_code


def _sample(config: Config, loaded: Loaded, options: argparse.Namespace) -> "Sample | None":
    """Read the sample, if there is one."""
    if options.sample is None:
        if options.model is not None:
            raise UsageError("--model: expected beside --sample, found alone")
        return None
    from monitor.cli.sample import try_sample  # noqa: PLC0415 - slow to import

    with working(f"reading {options.sample}"):
        return try_sample(config, loaded, options.sample, options.model)


def _listed(config: Config) -> Iterator[str]:
    """Yield every effective setting with its line, in aligned columns."""
    texts = [f"{one.path}: {one.value}" for one in config.settings]
    width = min(max(map(len, texts), default=0), _WIDEST)
    for text, one in zip(texts, config.settings, strict=True):
        yield f"{text:{width}}  {'default' if one.line is None else f'line {one.line}'}"


def _model_lines(model: ModelConfig, reference: Reference | None) -> list[str]:
    """Return the description of a model as lines."""
    when = f'at "{model.evaluate.line}" (UTC)' if isinstance(model.evaluate, Cron) else _every(model.evaluate.seconds)
    if reference is None:
        lines = [f"model {model.name}: no reference: there are no estimates, and its records are rejected"]
    else:
        lines = [
            f"model {model.name}: reference {reference.title}, accuracy {reference.calibration.accuracy:.3f}",
            f"  {ModelState(model_options(model, reference)).windows.memory()}",
        ]
    if model.segmentation.split_by:
        fields = "; ".join(" and ".join(names) for names in model.segmentation.split_by)
        lines.append(f"  at most {model.segmentation.most_segments:,} segments, by {fields}")
    lines.append(f"  evaluated {when}, with at least {model.minimum_records:,} records")
    if reference is not None:
        lines.append(f"  {_baseline_line(model, reference)}")
    if model.labels is not None:
        lines.append(f"  {_labels_line(model, model.labels)}")
    headline = HEADLINE if reference is None else reference.calibration.headline
    lines.extend(
        f"  alert {rule.name} ({rule.severity}): {_described(rule.with_headline(headline), model, reference)}"
        for rule in model.alerts
    )
    if not model.alerts:
        lines.append("  no alerts")
    if reference is not None:
        lines.extend(
            f"  warning: {warning}" for rule in model.alerts if (warning := _alert_warning(rule, reference)) is not None
        )
        lines.extend(f"  warning: {sentence}" for sentence in reference.warnings().values())
    return lines


def _baseline_line(model: ModelConfig, reference: Reference) -> str:
    """Describe what windows are compared with."""
    options, labelled, bounds = model.baseline, reference.calibration.segments, model.bounds
    first = f"their own first {options.needed(bounds.records):,} records"
    if options.records is None and bounds.age_seconds is not None:
        size = "" if bounds.records is None else f"{bounds.records:,} records or "
        first = f"their own first {size}{_time(bounds.age_seconds)}, at least {options.needed(None):,} records"
    if options.period is not None:
        times = (datetime.fromtimestamp(one, UTC).isoformat().replace("+00:00", "Z") for one in options.period)
        first = f"their own records from {' to '.join(times)}"
    if options.mode is BaselineMode.OWN:
        return f"the model and its segments are compared with {first}"
    if options.mode is BaselineMode.REFERENCE or not model.segmentation.split_by:
        return "compared with the reference"
    if labelled is None:
        return f"compared with the reference, segments with {first}"
    return (
        f"compared with the reference, {len(labelled)} segments with their labelled records in it, others with {first}"
    )


def _labels_line(model: ModelConfig, options: LabelOptions) -> str:
    """Describe what labels a model takes."""
    kept = f"keeps at most {options.most:,} predictions for labels, for {_time(options.horizon_seconds)}"
    if model.audit is None:
        return kept
    ids = ", and keeps the ids of those until they are labelled" if model.audit.keep_ids else ""
    return f"{kept}; audits {100.0 * model.audit.share:g}% of all records{ids}"


def _own(rule: AlertRule, reference: Reference | None) -> float | None:
    """Return the reference's own value of what an alert compares."""
    if reference is None:
        return None
    performance, target = reference.calibration.performance, target_of(rule, reference.classes)
    if rule.metric is None:
        return reference.calibration.accuracy
    return None if performance is None or target is None else performance.value(target)


def _described(rule: AlertRule, model: ModelConfig, reference: Reference | None) -> str:
    """Describe when an alert fires."""
    own = _own(rule, reference)
    hold = f", for {_time(rule.for_seconds)}" if rule.for_seconds else ""
    where = "" if rule.segments == ("*",) else f", in {', '.join(rule.segments)}"
    if rule.kind is AlertType.CHANGE:
        when = _change(rule, model, reference)
    elif rule.kind is AlertType.SILENT:
        when = f"no record for {_time(rule.after_seconds)}"
    elif rule.kind is AlertType.DEGRADED_INPUT:
        when = "too many records are rejected or suspicious"
    elif rule.kind is AlertType.DISAGREEMENT:
        limit = f"{CHANCE_MARGIN} times what chance alone gives" if rule.above is None else f"{rule.above:.3f}"
        when = f"disagreement over {limit}"
    elif rule.kind is AlertType.OUTPUT_DRIFT:
        limit = f"{DRIFT_MARGIN} times what chance alone gives, at least {DRIFT_LEAST:g}"
        when = f"outputs differ from the baseline by over {limit if rule.above is None else f'{rule.above:.3f}'}"
    elif rule.kind is AlertType.BASELINE_GAP:
        limit = "the gap" if own is None else f"{own - (rule.drop or 0.0):.3f}"
        when = f"{HEADLINE} of an own, unverified baseline under {limit}, {rule.drop:g} under the reference's accuracy"
    else:
        when = _accuracy(rule, own)
    return f"{when}{hold}{where}"


def _accuracy(rule: AlertRule, own: float | None) -> str:
    """Describe an alert on the accuracy, or on a metric."""
    if rule.above is not None:
        threshold = f"over {rule.above:.3f}"
    elif rule.below is not None:
        threshold = f"under {rule.below:.3f}"
    else:
        drop = rule.drop or 0.0
        threshold = f"{drop:g} under the reference's {rule.compared}"
        if rule.uses_baseline:
            threshold += ", or that of another baseline"
        if own is not None:
            threshold = f"under {own - drop:.3f}, {threshold}"
    compared = rule.estimator if rule.metric is None else rule.compared
    return f"{rule.on.replace('_', ' ')} of {compared} {threshold}"


def _change(rule: AlertRule, model: ModelConfig, reference: Reference | None) -> str:
    """Describe an alert of type change: the change that it tolerates, and its budget."""
    tolerance, why = float(rule.detector.effective(0.0)), ""
    if reference is not None and (unknown := _unknown(reference)) > tolerance:
        tolerance, why = unknown, " (what the reference leaves unknown)"
    what = "drop" if rule.direction is Direction.DOWN else "rise"
    windows = model.windows_of(rule)
    over = f"{windows:,} windows" if windows > 1 else "1 window"
    group = f"; of records with the same {rule.group_by}, the first counts" if rule.group_by is not None else ""
    first = FEWEST_BLOCKS * model.evaluate.shortest_seconds
    has_own = model.baseline.mode is BaselineMode.OWN or (model.baseline.mode is BaselineMode.AUTO and windows > 1)
    if has_own and first >= 86400.0:
        group += (
            f"; an own baseline takes {FEWEST_BLOCKS} evaluations with records, at least {first / 86400.0:.0f} days"
        )
    held = f"; held in {len(rule.maintenance)} maintenance periods" if rule.maintenance else ""
    return (
        f"the evidence of a {what} of more than {tolerance:.3f}{why} reaches 10^{math.log10(model.evidence_budget(rule)):.1f}: at most"
        f" one false alarm in {rule.false_alarm_seconds / 86400.0:g} days over {over} evaluated {_every(model.evaluate.shortest_seconds)}"
        f"{group}{held}"
    )


def _unknown(reference: Reference) -> float:
    """Return what a reference leaves unknown of its accuracy."""
    return smallest_tolerance(reference.calibration.records, reference.calibration.right)


def _alert_warning(rule: AlertRule, reference: Reference) -> str | None:
    """Return a warning if the alert cannot do what is written, or would fire on the reference itself."""
    own, unknown = _own(rule, reference), _unknown(reference)
    if rule.kind is AlertType.CHANGE and reference.calibration.adaptive_weight is None:
        return f"alert {rule.name}: off, since the reference was made by an older version of cpcmon: calibrate again"
    if rule.tolerance is not None and rule.tolerance < unknown:
        return (
            f"alert {rule.name}: tolerance {rule.tolerance:g} is under {unknown:.3f}, what a reference of"
            f" {reference.calibration.records:,} records leaves unknown, which is used: calibrate with more records for less"
        )
    if own is None or rule.kind is not AlertType.ACCURACY:
        return None
    said = f"alert {rule.name}: the {rule.compared} of the reference, {own:.3f}, is"
    if rule.below is not None and rule.below > own:
        return f"{said} under {rule.below:.3f}"
    if rule.above is not None and rule.above < own:
        return f"{said} over {rule.above:.3f}"
    return None


def _partition_line(source: SourceConfig, config: Config, loaded: Loaded) -> str:
    """Describe the memory use of one partition; their number is not known here."""
    windows, ids, kept = partition_cost(source, loaded)
    room = room_for(source, config, loaded)
    if room is None:
        return "no windows: none of its models has a reference"
    of_labels = f", {kept / 1e6:.1f} MB of predictions kept for labels" if kept else ""
    return (
        f"per partition assigned to this process: {windows / 1e6:.1f} MB of windows{of_labels} and {ids / 1e6:.1f} MB of ids at most;"
        f" limits.window_bytes has room for {room:,}"
    )


def _partition_remarks(source: SourceConfig, config: Config, loaded: Loaded) -> Iterator[str]:
    """Yield remarks on record limits that were probably meant for all partitions together."""
    room = room_for(source, config, loaded)
    if room is None or room >= FEW_PARTITIONS:
        return
    for place, (model, _) in enumerate(loaded):
        if model.bounds.records is not None and source.feeds(model.name):
            yield (
                f"models[{place}].window.records: this is the limit per partition, and {config.limits.window_bytes >> 20:,} MiB have"
                f" room for {room:,} partitions of source {source.name}: if it is meant for all partitions together,"
                " divide it by their number"
            )


def _once(config: Config) -> str:
    """Return a note for totals where there are partitions."""
    return " (counting one partition)" if any(source.options.sharded for source in config.sources) else ""


def _every(seconds: float) -> str:
    return f"every {_time(seconds)}"


def _counts(config: Config) -> str:
    alerts = sum(len(model.alerts) for model in config.models)
    counts = ((len(config.sources), "source"), (len(config.models), "model"), (alerts, "alert"))
    return ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for count, name in counts)
