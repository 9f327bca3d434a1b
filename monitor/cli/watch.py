"""`cpcmon watch`: follow a directory and print estimates, without a daemon."""

import argparse
import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from monitor.cli.inputs import add_kind_option, add_minimum_option, check_minimum
from monitor.cli.parser import as_path
from monitor.cli.progress_bar import progress_bar
from monitor.config.config import Config, ModelConfig, SourceConfig, Storage
from monitor.core.calibration import WindowEstimate
from monitor.core.decisions import DecidedBy
from monitor.core.estimate import Estimate, NoEstimate, Result, Why
from monitor.core.estimators.ensemble import headline_in
from monitor.core.intervals import Progress, by_level
from monitor.core.scores import MOST_RECORDS
from monitor.core.segments import ALL, Segmentation, name_of
from monitor.core.window import Bounds
from monitor.daemon.build import build
from monitor.daemon.clock import Clock
from monitor.errors import Problem, UsageError
from monitor.ingest.ingestion import Ingestion, Tick
from monitor.records.hints import COMMAND_LINE
from monitor.records.record_schema import OutputKind, RecordFields, TimeUnit
from monitor.reference.reference import Reference
from monitor.settings.kinds import seconds
from monitor.sources.base import SourceStatus
from monitor.sources.directory.directory_options import DirectoryOptions, OnFinish
from monitor.state.state_folder import REJECTED
from monitor.state.store import State

_FIELDS = ("probs", "model", "version", "id", "time", "predicted")


def register(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.description = (
        "Follow a directory of output files and estimate the accuracy as records arrive. Prints one line per window"
        " whenever records were read. The state survives restarts: no record is lost or counted twice."
    )
    parser.epilog = """\
examples:
  cpcmon watch inbox --reference density.ref --state state --segment-by site
  cpcmon watch inbox --reference density.ref --state state --once --json
"""
    parser.add_argument("inbox", type=as_path, help="the directory")
    parser.add_argument(
        "--reference",
        type=as_path,
        action="append",
        required=True,
        metavar="FILE",
        help="reference made by `cpcmon calibrate`; one per model",
    )
    parser.add_argument(
        "--state", type=as_path, required=True, metavar="DIR", help="directory for windows and checkpoints"
    )
    parser.add_argument(
        "--state-allow-network", action="store_true", help="allow a state directory on a network filesystem"
    )
    parser.add_argument("--once", action="store_true", help="read the existing files, print estimates, and exit")
    parser.add_argument("--json", action="store_true", help="print JSON, one object per window")
    window = parser.add_argument_group("windows")
    window.add_argument("--records", type=int, default=5000, metavar="N", help="the latest N records (default: 5000)")
    window.add_argument("--age", metavar="DURATION", help="maximum age of records, such as 12h or 7d (default: none)")
    window.add_argument(
        "--segment-by",
        action="append",
        default=[],
        metavar="FIELDS",
        help="one window per value of these fields: site, or site,scanner",
    )
    add_minimum_option(window)
    _add_input_options(parser)
    parser.set_defaults(run=run)


def _add_input_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("record format")
    add_kind_option(group)
    group.add_argument(
        "--field", action="append", default=[], metavar="NAME=PATH",
        help=f"path of a field, as in probs=prediction.scores; {', '.join(_FIELDS)}, or a field of --segment-by",
    )  # fmt: skip
    group.add_argument(
        "--class-columns", metavar="NAMES", help="one column per class: 'prob_*', or names in class order"
    )
    group.add_argument(
        "--time-unit", choices=[unit.value for unit in TimeUnit], default=TimeUnit.SECONDS.value,
        help="unit of numeric times (default: seconds since 1970)",
    )  # fmt: skip
    group.add_argument(
        "--time-zone",
        metavar="ZONE",
        help="zone of times without one, such as Europe/Oslo (default: such times are rejected)",
    )
    group.add_argument(
        "--store-raw", action="store_true", help="store the start of rejected records, which may contain patient data"
    )
    group.add_argument(
        "--pattern", default="*", metavar="GLOB", help="file names to read (default: *, all of a known format)"
    )
    group.add_argument("--recursive", action="store_true", help="read subdirectories")
    group.add_argument("--poll", default="2s", metavar="DURATION", help="poll interval (default: 2s)")
    group.add_argument(
        "--settle",
        default="5s",
        metavar="DURATION",
        help="how long a binary file must stay unchanged before it is read (default: 5s)",
    )
    group.add_argument(
        "--on-finish", choices=[way.value for way in OnFinish], default=OnFinish.KEEP.value,
        help="what to do with files that were read (default: keep)",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Watch until stopped."""
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(message)s", level=logging.INFO)
    if options.inbox.is_file():
        raise UsageError(Problem(str(options.inbox), "a directory", "a file; use `cpcmon estimate` for one file"))
    references = {reference.model: reference for reference in _references(options)}
    config = _config(options, list(references.values()))
    if _directory(options).reads_folder(options.state):
        raise UsageError(Problem(f"--state {options.state}", "a directory outside the watched one", "it inside"))
    state = State.open(options.state, allow_network=options.state_allow_network)
    try:
        ingestion = build(config, references, state, wording=COMMAND_LINE).ingestion
        for model in ingestion.states.common.values():
            print(f"{model.name}: {model.windows.memory()}", file=sys.stderr)
        clock = Clock()
        ingestion.start(clock().now)
        _Watch(ingestion, clock, options).run()
        ingestion.stop(clock().now)
    finally:
        state.close()
    return 0


class _Watch:
    """The loop: ingest, print estimates when records arrived, wait."""

    def __init__(self, ingestion: Ingestion, clock: Clock, options: argparse.Namespace) -> None:
        self._ingestion, self._view, self._clock = ingestion, ingestion.view, clock
        self._rejected_file = options.state / REJECTED
        self._as_json, self._once = options.json, options.once
        self._minimum: int = options.minimum_records
        self._catching_up = False
        self._stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())

    def run(self) -> None:
        """Run until stopped, or with --once until everything was read."""
        with progress_bar("reading files") as progress:
            self._run(progress)

    def _run(self, progress: Progress) -> None:
        waiting_for: str | None = None
        most_unread = 0
        while not self._stop.is_set():
            at = self._clock()
            tick = self._ingestion.tick(at.now, at.running)
            status = self._status()
            if status.waits_for != waiting_for:
                waiting_for = status.waits_for
                print(f"{status.name}: {waiting_for or 'found'}", file=sys.stderr)
            self._report_left_out(tick)
            unread = status.lag.bytes
            most_unread = max(most_unread, unread) if unread else 0
            if most_unread and (self._once or self._catching_up):
                progress(1.0 - unread / most_unread)
            if tick.records or tick.rejected:
                if not self._is_catching_up() and not self._once:
                    self._print_estimates()
                continue
            if self._once and self._is_done():
                break
            wait = self._ingestion.next_poll_seconds()
            self._stop.wait(min(wait, 0.2) if self._once else wait)
        if self._once:
            self._print_estimates()
            if waiting_for is not None:
                raise UsageError(f"{waiting_for}; --once does not wait")

    def _is_catching_up(self) -> bool:
        """Return whether the backlog is so large that estimates would be outdated; report when that begins."""
        catching_up = self._view.catching_up(self._clock().now)
        if catching_up and not self._catching_up:
            lag = self._status().lag
            print(f"catching up: {lag.files:,} files, {lag.bytes / 1e6:,.1f} MB unread", file=sys.stderr)
        self._catching_up = catching_up
        return catching_up

    def _is_done(self) -> bool:
        """Return whether everything was read."""
        return self._view.paused is None and not self._status().lag.files

    def _status(self) -> SourceStatus:
        (status,) = self._view.sources()
        return status

    def _report_left_out(self, tick: Tick) -> None:
        """Report rejected and left-out records."""
        reasons = [f"{n:,} {reason}" for (_, reason), n in tick.counted.records_rejected.items()]
        if reasons:
            print(
                f"rejected {tick.rejected:,} records: {', '.join(reasons)}; see {self._rejected_file}", file=sys.stderr
            )
        if referred := tick.counted.records_referred.total():
            print(f"left out {referred:,} records that were referred to a person", file=sys.stderr)
        if other := tick.counted.records_other_version.total():
            print(f"left out {other:,} records of another version than the reference", file=sys.stderr)
        if unstored := tick.counted.records_unstored_segment.total():
            print(f"{unstored:,} records count in `all` only: too many segments", file=sys.stderr)

    def _print_estimates(self) -> None:
        at = self._clock()
        now = at.now
        for name, model in self._ingestion.states.common.items():
            snapshot = self._view.snapshot(name, now, at.running)
            estimates = model.options.reference.calibration.estimate_windows(snapshot.measured)
            for index, segment in enumerate(snapshot.segments):
                records = int(estimates.records[index])
                found = estimates.window(index)
                result = self._headline(found)
                answer: dict[str, Any] = {"time": round(now, 3), "model": name, "segment": name_of(segment)}
                answer |= {"records": records, "accuracy": None, "lower": None, "upper": None, "field": None}
                if isinstance(result, Estimate):
                    answer["accuracy"] = result.accuracy
                    if result.interval is not None:
                        answer |= {"lower": result.interval.lower, "upper": result.interval.upper}
                    answer["field"] = by_level(found.field)
                else:
                    answer["reason"] = result.why.value if records else "no records"
                    answer["minimum_records"] = self._minimum
                if segment == ALL:
                    answer |= {"rejected": self._rejected(), "degraded_input": snapshot.input.degraded}
                print(json.dumps(answer) if self._as_json else _line(answer), flush=True)

    def _headline(self, found: WindowEstimate) -> Result:
        if found.records < self._minimum:
            return NoEstimate(Why.TOO_FEW_RECORDS, found.records, minimum_records=self._minimum)
        return found[headline_in(found)]

    def _rejected(self) -> int:
        return self._view.counters().records_rejected.total()


def _line(answer: dict[str, Any]) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(answer["time"]))
    start = f"{clock}  {answer['model']} {answer['segment']}: {answer['records']:,} records, "
    interval = "" if answer["lower"] is None else f" ({answer['lower']:.3f} to {answer['upper']:.3f})"
    if answer["field"] is not None:
        interval += f", 90% field interval {answer['field']['90'][0]:.3f} to {answer['field']['90'][1]:.3f}"
    found = f"estimated accuracy {answer['accuracy']:.3f}{interval}" if answer["accuracy"] is not None else None
    few = answer.get("reason") == Why.TOO_FEW_RECORDS
    needed = f": an estimate needs {answer['minimum_records']:,}" if few else ""
    warning = "; input degraded: many records are rejected" if answer.get("degraded_input") else ""
    rejected = f"; {answer['rejected']:,} rejected so far" if answer.get("rejected") else ""
    return f"{start}{found or 'no estimate (' + answer['reason'] + needed + ')'}{rejected}{warning}"


def _references(options: argparse.Namespace) -> list[Reference]:
    references = [Reference.load(path) for path in options.reference]
    names = [reference.model for reference in references]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(Problem("--reference", "one per model", f"two for {twice!r}"))
    return references


def _decides(reference: Reference) -> bool:
    return reference.calibration.decision.by is DecidedBy.FIELD


def _config(options: argparse.Namespace, references: Sequence[Reference]) -> Config:
    """Return the options as a configuration."""
    if not 1 <= options.records <= MOST_RECORDS:
        raise UsageError(Problem("--records", f"1 to {MOST_RECORDS:,} records", f"{options.records:,}"))
    bounds = Bounds(options.records, None if options.age is None else seconds(options.age, "--age"))
    check_minimum(options, "--records", options.records)
    try:
        segmentation = Segmentation(tuple(tuple(one.split(",")) for one in options.segment_by))
    except ValueError as error:
        found = " and ".join(options.segment_by)
        raise UsageError(Problem("--segment-by", "sets of different fields, each set once", found)) from error
    fields = _fields(options, {name for names in segmentation.split_by for name in names})
    if fields.predicted is None and (deciding := [one.model for one in references if _decides(one)]):
        found = f"none, and the records of model {deciding[0]} decide"
        raise UsageError(Problem("--field", "predicted=PATH, the field of the decision", found))
    kind, names = OutputKind(options.kind), [reference.model for reference in references]
    return Config(
        Storage(options.state),
        (SourceConfig("inbox", _directory(options), fields, store_raw=options.store_raw),),
        tuple(ModelConfig(name, None, kind=kind, bounds=bounds, segmentation=segmentation) for name in names),
    )


def _fields(options: argparse.Namespace, segment_fields: set[str]) -> RecordFields:
    places: dict[str, Any] = {}
    segments: dict[str, str] = {}
    for text in options.field:
        name, separator, place = text.partition("=")
        if not separator or not place or name not in {*_FIELDS, *segment_fields}:
            known = ", ".join([*_FIELDS, *sorted(segment_fields)])
            raise UsageError(Problem("--field", f"NAME=PATH with a name among {known}", repr(text)))
        (places if name in _FIELDS else segments)[name] = place
    columns = tuple(options.class_columns.split(",")) if options.class_columns else None
    fields = RecordFields(
        class_columns=columns, segments=segments, time_unit=TimeUnit(options.time_unit), time_zone=options.time_zone
    )
    return replace(fields, **places)


def _directory(options: argparse.Namespace) -> DirectoryOptions:
    settle = seconds(options.settle, "--settle")
    directory = DirectoryOptions(
        path=options.inbox,
        pattern=options.pattern,
        recursive=options.recursive,
        on_finish=OnFinish(options.on_finish),
        poll_seconds=seconds(options.poll, "--poll"),
        settle_seconds=settle,
    )
    # With --once, do not wait long for a damaged file to change.
    return replace(directory, retry_incomplete_seconds=2 * settle) if options.once else directory
