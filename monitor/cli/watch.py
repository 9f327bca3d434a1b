"""`cpcmon watch`: follow a directory of outputs, and say how accurate the model is now. No broker, no server."""

import argparse
import json
import logging
import signal
import sys
import threading
import time
from dataclasses import replace
from typing import Any

from monitor.cli.inputs import add_minimum_option, check_minimum
from monitor.cli.parser import as_path
from monitor.cli.progress_bar import progress_bar
from monitor.config.config import ModelOptions
from monitor.core.estimate import Estimate, NoEstimate, Result, Why
from monitor.core.intervals import Progress
from monitor.core.segments import ALL, Segmentation, name_of
from monitor.core.totals import WindowTotals
from monitor.core.window import Bounds
from monitor.daemon.clock import Clock
from monitor.errors import UsageError
from monitor.ingest.ingestion import Ingestion, Tick
from monitor.ingest.model_state import ModelState
from monitor.records.decoder import StreamDecoder
from monitor.records.hints import COMMAND_LINE
from monitor.records.layout import OutputKind
from monitor.records.record_schema import RecordFields, TimeUnit
from monitor.reference.reference import Reference
from monitor.settings.quantities import seconds
from monitor.sources.directory.crash_guard import CrashGuard
from monitor.sources.directory.directory_options import DirectoryOptions, OnFinish
from monitor.sources.directory.directory_source import DirectorySource
from monitor.sources.directory.scan import identity_of, would_be_read
from monitor.state.rejected_file import NAME as REJECTED
from monitor.state.store import State

_FIELDS = ("probs", "model", "version", "id", "time", "predicted")


def register(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.description = (
        "Follow a directory into which outputs are dropped or appended, and estimate the accuracy as they come."
        " One line for each window comes out whenever something new was read. What was read survives a restart: no record is"
        " lost or counted twice."
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
        help="made by `cpcmon calibrate`; one a model",
    )
    parser.add_argument(
        "--state", type=as_path, required=True, metavar="DIR", help="where windows and positions are kept"
    )
    parser.add_argument("--state-allow-network", action="store_true", help="use a state on a network filesystem")
    parser.add_argument("--once", action="store_true", help="read what is there, say it, and stop")
    parser.add_argument("--json", action="store_true", help="one JSON object for each answer")
    window = parser.add_argument_group("windows")
    window.add_argument("--records", type=int, default=5000, metavar="N", help="the latest N records (default: 5000)")
    window.add_argument("--age", metavar="DURATION", help="and none older than this: 12h, 7d (default: of any age)")
    window.add_argument(
        "--segment-by",
        action="append",
        default=[],
        metavar="FIELDS",
        help="a window for each value: site, or site,scanner",
    )
    add_minimum_option(window)
    _add_input_options(parser)
    parser.set_defaults(run=run)


def _add_input_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how to read the records")
    group.add_argument(
        "--kind",
        choices=[kind.value for kind in OutputKind],
        default=OutputKind.PROBS.value,
        help="what the numbers are (default: probs)",
    )
    group.add_argument(
        "--field", action="append", default=[], metavar="NAME=PATH",
        help=f"where a field stands: probs=prediction.scores; {', '.join(_FIELDS)}, or a field of --segment-by",
    )  # fmt: skip
    group.add_argument("--class-columns", metavar="NAMES", help="one column a class: 'prob_*', or names in class order")
    group.add_argument(
        "--time-unit", choices=[unit.value for unit in TimeUnit], default=TimeUnit.SECONDS.value,
        help="what times written as numbers count (default: seconds since 1970)",
    )  # fmt: skip
    group.add_argument(
        "--time-zone",
        metavar="ZONE",
        help="zone of times written without one: Europe/Oslo (default: such times are refused)",
    )
    group.add_argument(
        "--store-raw", action="store_true", help="keep the start of refused records too: they may name patients"
    )
    group.add_argument(
        "--pattern", default="*", metavar="GLOB", help="names of files to read (default: *, all of a known format)"
    )
    group.add_argument("--recursive", action="store_true", help="look into subdirectories too")
    group.add_argument("--poll", default="2s", metavar="DURATION", help="how often to look (default: 2s)")
    group.add_argument(
        "--settle", default="5s", metavar="DURATION", help="how long a binary file must rest (default: 5s)"
    )
    group.add_argument(
        "--on-finish", choices=[way.value for way in OnFinish], default=OnFinish.KEEP.value,
        help="what becomes of files that were read (default: keep)",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Watch until told to stop."""
    logging.basicConfig(stream=sys.stderr, format="%(levelname)s %(message)s", level=logging.INFO)
    if options.inbox.is_file():
        raise UsageError(
            f"{options.inbox}: expected a directory to follow, found a file; for one file there is `cpcmon estimate`"
        )
    models = _models(options)
    directory = _directory(options)
    fields = _fields(options, {name for model in models for name in model.format.segment_fields})
    if would_be_read(options.state, directory):
        raise UsageError(f"--state {options.state}: expected a folder outside the one that is watched, found it inside")
    state = State.open(options.state, allow_network=options.state_allow_network)
    try:
        decoder = StreamDecoder(
            [model.format for model in models],
            fields,
            hash_key=state.key,
            keep_raw=options.store_raw,
            wording=COMMAND_LINE,
        )
        guard = CrashGuard(options.state / "in_flight")
        # However it came there, by a link or a mount: what cpcmon writes it never reads as input.
        directory = replace(directory, never=(identity_of(options.state),))
        source = DirectorySource("inbox", directory, decoder, key=state.key, guard=guard)
        watched = [ModelState(model) for model in models]
        for one in watched:
            print(f"{one.name}: {one.windows.memory()}", file=sys.stderr)
        ingestion = Ingestion(state, watched, [source])
        clock = Clock()
        ingestion.start(clock().now)
        _Watch(ingestion, source, clock, options).run()
        ingestion.stop(clock().now)
    finally:
        state.close()
    return 0


class _Watch:
    """The loop: take in, answer when something new came, wait."""

    def __init__(
        self, ingestion: Ingestion, source: DirectorySource, clock: Clock, options: argparse.Namespace
    ) -> None:
        self._ingestion, self._source, self._clock = ingestion, source, clock
        self._where = f"where they stand is in {options.state / REJECTED}"
        self._as_json, self._once = options.json, options.once
        self._minimum: int = options.minimum_records
        self._said_catching_up = False
        self._stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._stop.set())

    def run(self) -> None:
        """Go on until stopped, or until everything was read."""
        with progress_bar("reading what is there") as progress:
            self._run(progress)

    def _run(self, progress: Progress) -> None:
        waited_for: str | None = None
        most = 0
        while not self._stop.is_set():
            at = self._clock()
            tick = self._ingestion.tick(at.now, at.running)
            if (waits := self._source.ready()) != waited_for:
                waited_for = waits
                print(f"{self._source.name}: {waits or 'found'}", file=sys.stderr)
            self._say_what_was_left_out(tick)
            unread = self._ingestion.lags()[self._source.name].bytes
            most = max(most, unread) if unread else 0
            if most and (self._once or self._said_catching_up):
                progress(1.0 - unread / most)
            if tick.records or tick.rejected:
                if not self._is_catching_up() and not self._once:
                    self._answer()
                continue
            if self._once and self._is_done():
                break
            self._stop.wait(
                min(self._source.next_poll_seconds(), 0.2) if self._once else self._source.next_poll_seconds()
            )
        if self._once:
            self._answer()
            if waited_for is not None:
                raise UsageError(f"{waited_for}; with --once there is nothing to wait for")

    def _is_catching_up(self) -> bool:
        """Tell whether so much is unread that an answer would be of the past; say so when it begins."""
        catching_up = self._ingestion.catching_up(self._clock().now)
        if catching_up and not self._said_catching_up:
            lag = self._ingestion.lags()[self._source.name]
            print(f"catching up: {lag.files:,} files, {lag.bytes / 1e6:,.1f} MB unread", file=sys.stderr)
        self._said_catching_up = catching_up
        return catching_up

    def _is_done(self) -> bool:
        """Tell whether everything that is there has been taken in."""
        return self._ingestion.paused is None and not self._ingestion.lags()[self._source.name].files

    def _say_what_was_left_out(self, tick: Tick) -> None:
        """Say why records were refused or kept out: silence would be taken for health."""
        reasons = [f"{n:,} {name[-1]}" for name, n in tick.gained.items() if name[0] == "records_rejected_total"]
        if reasons:
            print(f"rejected {tick.rejected:,} records: {', '.join(reasons)}; {self._where}", file=sys.stderr)
        if other := tick.of("records_other_version_total"):
            print(f"kept out {other:,} records of another version than the reference's", file=sys.stderr)
        if unstored := tick.of("records_unstored_segment_total"):
            print(f"{unstored:,} records count in the whole only: there are too many segments", file=sys.stderr)

    def _answer(self) -> None:
        now = self._clock().now
        for name, model in self._ingestion.models.items():
            for segment, totals in self._ingestion.totals(name).items():
                result = self._judged(totals)
                answer: dict[str, Any] = {"time": round(now, 3), "model": name, "segment": name_of(segment)}
                answer |= {"records": totals.records, "accuracy": None, "lower": None, "upper": None}
                if isinstance(result, Estimate):
                    answer["accuracy"] = result.accuracy
                    if result.interval is not None:
                        answer |= {"lower": result.interval.lower, "upper": result.interval.upper}
                else:
                    answer["reason"] = result.why.value if totals.records else "no records"
                    answer["minimum_records"] = self._minimum
                if segment == ALL:
                    answer |= {"rejected": self._rejected(), "degraded_input": model.health.degraded}
                print(json.dumps(answer) if self._as_json else _sentence(answer), flush=True)

    def _judged(self, totals: WindowTotals) -> Result:
        if totals.records < self._minimum:
            return NoEstimate(Why.TOO_FEW_RECORDS, totals.records, minimum_records=self._minimum)
        return totals.estimate()["consensus"]

    def _rejected(self) -> int:
        return sum(count for name, count in self._ingestion.counters.items() if name[0] == "records_rejected_total")


def _sentence(answer: dict[str, Any]) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(answer["time"]))
    start = f"{clock}  {answer['model']} {answer['segment']}: {answer['records']:,} records, "
    interval = "" if answer["lower"] is None else f" ({answer['lower']:.3f} to {answer['upper']:.3f})"
    found = f"estimated accuracy {answer['accuracy']:.3f}{interval}" if answer["accuracy"] is not None else None
    few = answer.get("reason") == Why.TOO_FEW_RECORDS
    needed = f": an estimate needs {answer['minimum_records']:,}" if few else ""
    warning = "; input degraded: many records are rejected" if answer.get("degraded_input") else ""
    rejected = f"; {answer['rejected']:,} rejected so far" if answer.get("rejected") else ""
    return f"{start}{found or 'cannot say (' + answer['reason'] + needed + ')'}{rejected}{warning}"


def _models(options: argparse.Namespace) -> list[ModelOptions]:
    age = None if options.age is None else seconds(options.age, "--age")
    try:
        bounds = Bounds(options.records, age)
    except ValueError as error:
        # It speaks of settings of the daemon, and so does the next one.
        raise UsageError(f"--records, --age: {str(error).removeprefix('window: ')}") from error
    check_minimum(options, "--records", options.records)
    try:
        segmentation = Segmentation(tuple(tuple(one.split(",")) for one in options.segment_by))
    except ValueError as error:
        raise UsageError(f"--segment-by: {str(error).removeprefix('segments: ')}") from error
    references = [Reference.load(path) for path in options.reference]
    names = [reference.model for reference in references]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"--reference: expected one for each model, found two for {twice!r}")
    return [
        ModelOptions(reference.model, reference, bounds, segmentation, OutputKind(options.kind))
        for reference in references
    ]


def _fields(options: argparse.Namespace, segment_fields: set[str]) -> RecordFields:
    places: dict[str, Any] = {}
    segments: dict[str, str] = {}
    for text in options.field:
        name, separator, place = text.partition("=")
        if not separator or not place or name not in {*_FIELDS, *segment_fields}:
            known = ", ".join([*_FIELDS, *sorted(segment_fields)])
            raise UsageError(f"--field: expected NAME=PATH with a name among {known}, found {text!r}")
        (places if name in _FIELDS else segments)[name] = place
    columns = tuple(options.class_columns.split(",")) if options.class_columns else None
    fields = RecordFields(
        class_columns=columns,
        segments=segments,
        time_unit=TimeUnit(options.time_unit),
        time_zone=options.time_zone,
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
    # Whoever waits for the end does not wait long for a damaged file to be mended.
    return replace(directory, retry_incomplete_seconds=2 * settle) if options.once else directory
