"""`cpcmon check-config --sample`: what the daemon would do with the records of a file."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from monitor.config.config import Config, IngestOptions, SourceConfig, model_options
from monitor.config.references import Loaded
from monitor.core.baselines.output_drift import jensen_shannon
from monitor.core.input_health import FEWEST, InputProblem
from monitor.core.record_columns import Records
from monitor.core.report import Report
from monitor.errors import InvalidInput, Problem, UsageError
from monitor.evaluation.evaluator import Evaluator
from monitor.ingest.backlog import Backlog
from monitor.ingest.model_state import ModelState, ModelStates
from monitor.ingest.planning import plan_commit
from monitor.records.decoder import RecordDecoder
from monitor.records.record_batch import SUFFIXES, Pointer, RecordBatch, format_of
from monitor.records.record_schema import Carries
from monitor.records.rejections import Reason, RejectedFile, listed
from monitor.sources.base import Delivery
from monitor.state.commit_plan import Counters
from monitor.web.pages.wording import ago, clock, per_cent, plural, problem_words

MOST_RECORDS = 1_000
"""Records that are read; more if the block with the last of them is longer."""
_MOST_SHOWN = 10
"""Segments and classes that are listed."""
_OF_THE_SAMPLE = frozenset({InputProblem.TIME_BEHIND, InputProblem.ALERT_MATCHES_NOTHING})
"""What an old or small sample explains."""


@dataclass(slots=True)
class Sample:
    """The lines to print, and the number of problems."""

    lines: list[str]
    problems: int = 0

    def add(self, line: str, *, problem: bool = False) -> None:
        """Add a line."""
        self.lines.append(f"  {'problem: ' if problem else ''}{line}")
        self.problems += problem


def try_sample(config: Config, loaded: Loaded, file: Path, model: str | None) -> Sample:
    """Read some records as the daemon would, and describe what becomes of them; raises CpcmonError."""
    known = [one for one, reference in loaded if reference is not None]
    if model is not None and model not in {one.name for one in known}:
        expected = f"one of the models with a reference: {listed(tuple(one.name for one in known))}"
        raise UsageError(Problem("--model", expected, repr(model)))
    chosen = [(one, reference) for one, reference in loaded if model in {None, one.name}]
    reading = [source for source in config.sources if any(source.reads(one.name) for one, _ in chosen)]
    own = [source for source in reading if source.options.reads_folder(file.resolve().parent)]
    tried, failed = list[tuple[SourceConfig, list[RecordBatch]]](), list[RejectedFile]()
    for source in own or reading:
        try:
            tried.append((source, _read(file, _decoder(source, chosen))))
        except RejectedFile as error:
            failed.append(error)
    # Predictions are no labels, nor the other way round.
    fitting = {source.carries for source, batches in tried if any(batch.accepted for batch in batches)}
    if failed and not fitting:
        raise failed[0]
    found = Sample([])
    for source, batches in tried:
        if not fitting or source.carries in fitting:
            _describe(
                source, [(one, reference) for one, reference in chosen if source.reads(one.name)], batches, file, found
            )
    return found


def _decoder(source: SourceConfig, loaded: Loaded) -> RecordDecoder:
    formats = [
        model_options(one, reference).format
        for one, reference in loaded
        if reference is not None and source.reads(one.name)
    ]
    return RecordDecoder(formats, source.fields, hash_key=bytes(16), carries=source.carries)


def _describe(source: SourceConfig, loaded: Loaded, batches: Sequence[RecordBatch], file: Path, found: Sample) -> None:
    """Describe what becomes of the records with the settings of one source."""
    of_labels = source.carries is Carries.LABELS
    accepted = sum(batch.accepted for batch in batches)
    rejected = sum(batch.rejected.total() for batch in batches)
    total = accepted + rejected
    counts = f"{plural(total, 'label' if of_labels else 'record')} read, {accepted:,} accepted, {rejected:,} rejected"
    found.lines.append(f"sample {file} as source {source.name}: {counts}")
    _describe_rejected(batches, total, found)
    if of_labels:
        for one, reference in loaded:
            if reference is not None and any(one.name in batch.models for batch in batches):
                _describe_labels(one.name, reference.classes, batches, found)
        return
    options = [model_options(one, reference) for one, reference in loaded if reference is not None]
    # One window for all: the daemon's may be shorter than the sample.
    everything = [replace(one, bounds=replace(one.bounds, records=max(1, total), age_seconds=None)) for one in options]
    backlog = Backlog([], IngestOptions())
    backlog.end_poll(backlog.begin_poll(), 0.0)
    states, now = ModelStates([ModelState(one) for one in everything], Counters(), backlog), time.time()
    for batch in batches:
        plan = plan_commit(states, source.name, [Delivery(batch=batch)], now)
        states.apply(plan, range(len(plan.chunks)), 0.0)
    for one, reference in loaded:
        if reference is not None and any(one.name in batch.models for batch in batches):
            report = Evaluator(one, reference, states).evaluate(now, 0.0, 0.0)
            _describe_model(report, batches, states.counters(), now, found)
            _describe_segments(report, one.segmentation.split_by, source, states.counters(), found)
            _describe_problems(report, found)


def _read(file: Path, decoder: RecordDecoder) -> list[RecordBatch]:
    """Return the first records of a file."""
    format_ = format_of(file.name)
    if format_ is None:
        raise InvalidInput(Problem(str(file), f"a file named {', '.join(SUFFIXES)}", repr(file.suffix or "no suffix")))
    batches: list[RecordBatch] = []
    try:
        with file.open("rb") as content:
            for batch in decoder.settled(str(file), content, format_):
                batches.append(batch)
                if sum(one.rows - one.ignored for one in batches) >= MOST_RECORDS:
                    break
    except OSError as error:
        raise InvalidInput(Problem(str(file), "a readable file", str(error.strerror or error))) from error
    return batches


def _describe_rejected(batches: Sequence[RecordBatch], total: int, found: Sample) -> None:
    reasons: Counter[Reason] = Counter()
    first: dict[Reason, Pointer] = {}
    for batch in batches:
        for (_, reason), count in batch.rejected.items():
            reasons[reason] += count
        for pointer in batch.pointers:
            first.setdefault(pointer.reason, pointer)
    for reason, count in reasons.most_common():
        one = first.get(reason)
        such = "" if one is None else f", such as record {one.number:,}: expected {one.expected}"
        found.add(f"rejected as {reason}: {count:,}{such}")
    hints = dict.fromkeys(hint for batch in batches for some in batch.hints.values() for hint in some)
    for hint in hints:
        found.add(hint)
    if not total:
        found.add("records: expected some, found none", problem=True)
    elif reasons.total() > 0.05 * total:
        found.add(
            f"records: expected at most 5% rejected, found {per_cent(reasons.total() / total)}; there would be no estimate",
            problem=True,
        )


def _describe_model(
    report: Report, batches: Sequence[RecordBatch], counters: Counters, now: float, found: Sample
) -> None:
    """Describe the records of one model."""
    name = report.model
    records = [batch.models[name] for batch in batches if name in batch.models]
    whole = report.windows.names.index("all")
    entered = int(report.windows.records[whole])
    found.add(f"model {name}: {sum(map(len, records)):,} accepted, {entered:,} counted")
    dropped = {
        "with an id that occurred before": counters.records_duplicate[name],
        "of another version": counters.records_other_version[name],
        "referred to a person": counters.records_referred[name],
    }
    for why, count in dropped.items():
        if count:
            found.add(f"  dropped, {why}: {count:,}")
    versions = Counter(
        text for one in records for text in ([""] * len(one) if one.versions is None else one.versions.texts())
    )
    found.add(f"  versions: {_counts({text or 'none': count for text, count in versions.most_common()})}")
    _describe_times(records, now, found)
    _describe_classes(report, whole, found)
    mismatches = counters.records_argmax_mismatch[name]
    if mismatches:
        found.add(
            f"  decisions: {mismatches:,} records name another class than the one decided from their probabilities"
        )


def _describe_labels(model: str, classes: Sequence[str], batches: Sequence[RecordBatch], found: Sample) -> None:
    """Describe the labels of one model."""
    labels = [batch.models[model] for batch in batches if model in batch.models]
    indices = np.concatenate([one.labels for one in labels if one.labels is not None])
    ids = np.concatenate([one.ids for one in labels if one.ids is not None])
    again = len(ids) - len(np.unique(ids))
    found.add(f"model {model}: {len(indices):,} labels of {plural(len(ids) - again, 'id')}")
    counts = Counter(classes[index] for index in indices.tolist())
    found.add(f"  classes: {_counts(dict(counts.most_common()))}")
    _describe_times(labels, time.time(), found)


def _describe_times(records: Sequence[Records], now: float, found: Sample) -> None:
    at = np.concatenate([one.at for one in records])
    known = at[~np.isnan(at)]
    if len(known):
        newest = float(known.max())
        ahead = (
            f"{(newest - now) / 60.0:,.0f} minutes ahead of the clock"
            if newest > now
            else f"the newest {ago(now - newest)}"
        )
        found.add(f"  times: {clock(float(known.min()))} to {clock(newest)}, {ahead}")
    if len(known) < len(at):
        found.add(f"  without a time, so that they count as of their arrival: {len(at) - len(known):,}")


def _describe_problems(report: Report, found: Sample) -> None:
    """Say what the daemon would report as a problem of the input."""
    if (entered := int(report.windows.records[0])) < FEWEST:
        found.add(f"  too few records to judge the input: {entered:,} of {FEWEST:,}")
    for one in report.input.problems:
        words = problem_words(one)
        if one.problem in _OF_THE_SAMPLE:
            found.add(f"  remark: {words}; an old or small sample explains it")
        else:
            found.add(f"{report.model}: {words}", problem=True)


def _describe_segments(
    report: Report, split_by: Sequence[tuple[str, ...]], source: SourceConfig, counters: Counters, found: Sample
) -> None:
    """Show the segments of each set of fields, with their records, and from which field of a record they are."""
    windows = report.windows
    for fields in split_by:
        own = {
            windows.names[index]: int(windows.records[index])
            for index, segment in enumerate(windows.segments)
            if segment and tuple(field for field, _ in segment) == fields
        }
        without = counters.records_without_segment[report.model, ",".join(fields)]
        lacking = f"; records without: {without:,}" if without else ""
        names = " and ".join(_with_path(one, source.fields.segments.get(one)) for one in fields)
        found.add(f"  segments by {names}: {_counts(own) or 'none'}{lacking}")
    if counters.records_unstored_segment[report.model]:
        found.add(f"  beyond segments.limit: {counters.records_unstored_segment[report.model]:,} records")


def _with_path(name: str, path: str | None) -> str:
    return name if path is None or path == name else f"{name} (field {path})"


def _describe_classes(report: Report, whole: int, found: Sample) -> None:
    """Show the predicted classes beside those of the reference, those that differ most first."""
    facts, now = report.reference, report.segments[whole].predicted or tuple(report.windows.predicted[whole].tolist())
    if facts is None or not sum(now) or len(now) != len(facts.predicted):
        return
    here, there = (np.array(one) / max(1, sum(one)) for one in (now, facts.predicted))
    found.add(
        f"  predicted classes, a Jensen-Shannon distance of {jensen_shannon(here, there):.2f} from the reference:"
    )
    order = np.argsort(-np.abs(here - there), kind="stable")[:_MOST_SHOWN].tolist()
    width = max(len(facts.classes[one]) for one in order)
    for one in sorted(order):
        found.add(f"    {facts.classes[one]:{width}}  {per_cent(here[one]):>6}  reference {per_cent(there[one]):>6}")
    if len(here) > len(order):
        found.add(f"    and {len(here) - len(order):,} more, which differ less")


def _counts(counts: dict[str, int]) -> str:
    """Return names with their counts: the first few, and the number of the others."""
    return listed([f"{name} ({count:,})" for name, count in counts.items()], _MOST_SHOWN)


__all__ = ["try_sample"]
