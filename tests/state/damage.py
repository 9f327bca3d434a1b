"""Damaged states: made in many ways from a good one, started by the real code, and compared with what the good one says.

Every damaged state has a good backup beside it. So none may keep cpcmon from starting, and none may change a number
unless cpcmon reports it.
"""

import logging
import os
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from monitor.config.config import LabelOptions, ModelOptions
from monitor.core.history import Series, Span
from monitor.core.segments import Segmentation
from monitor.core.window import Bounds
from monitor.errors import StateLost
from monitor.ingest.ingestion import Ingestion
from monitor.ingest.model_state import ModelState
from monitor.records.decoder import RecordDecoder
from monitor.records.record_schema import Carries
from monitor.state import commit_plan as chunk_log
from monitor.state.commit_plan import CommitPlan
from monitor.state.evaluation_history import History
from monitor.state.store import State
from tests.core.test_history import START, report
from tests.ingest.lines import NOW, LinesSource, exact, line, small_reference

PAGE = 4096
_SMALL = 24
DATABASE, WAL = "state.db", "state.db-wal"
LINES = [
    line(number, site="ABC"[number % 3], id=f"i{number}") if number % 50 else b"{nonsense\n" for number in range(1500)
]
LABELS = [b'{"id": "i%d", "label": %d}\n' % (number * 7 % 1500, number % 3) for number in range(300)]
MORE = [line(number, site="ABCD"[number % 4], id=f"i{number}") for number in range(1500, 1540)]


_BEHIND = {"records_evicted_total", "records_late_total", "labels_without_prediction_total"}
"""Counters that are written with the next commit: after a recovery some may be missing. Or depend on what is read first:
the labels, or the records."""


class Outcome(StrEnum):
    """The outcome of a damaged state."""

    HARMLESS = "harmless"
    """Nothing changed."""
    NOTICED = "noticed"
    """Reported, and the rest is exact."""
    SILENT = "SILENT"
    """Something changed without a report."""
    NO_START = "NO START"
    """It does not start, or cannot continue, although there is a good backup."""


@dataclass(frozen=True)
class Damage:
    """A modification of a good state."""

    kind: str
    where: str
    killed: bool
    """Whether it applies to the state of a killed process, which has a write-ahead log."""
    file: str
    content: bytes | None
    """None deletes the file."""


@dataclass(frozen=True)
class Found:
    """Everything that a start reads, as comparable values."""

    windows: Mapping[str, object]
    counters: Mapping[tuple[str, ...], int]
    positions: Mapping[bytes, Mapping[bytes, bytes]]
    others: Mapping[str, object]
    """What no source can deliver again."""

    def agrees(self, other: "Found") -> bool:
        """Return whether everything derived from records is equal: nothing lost, nothing counted twice."""
        mine, others = ({k: n for k, n in one.counters.items() if k[0] not in _BEHIND} for one in (self, other))
        return (self.windows, mine, self.positions) == (other.windows, others, other.positions)


@dataclass
class Story:
    """The history of a state from its start on."""

    found: list[Found] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    problem: str = ""


class _Warnings(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


class Life:
    """A process, as far as its state goes."""

    def __init__(self, folder: Path, lines: list[bytes], at_once: int = 40) -> None:
        self.state = State.open(folder)
        try:
            self.history = History()
            self.history.restore(self.state.history())
            self.logged = self.state.past_events()
            bounds, segmentation, kept = Bounds(records=600), Segmentation((("site",),)), LabelOptions(most=700)
            options = ModelOptions("density", small_reference(), bounds, segmentation, labels=kept)
            self.model = ModelState(options)
            decoder = RecordDecoder([options.format], hash_key=self.state.key)
            of_labels = RecordDecoder([options.format], hash_key=self.state.key, carries=Carries.LABELS)
            sources = [
                LinesSource(lines, decoder, at_once=at_once),
                # One label for five records, in the order of both.
                LinesSource(LABELS[: len(lines) // 5], of_labels, at_once=at_once, name="labels"),
            ]
            self.ingestion = Ingestion(
                self.state, [self.model], sources, history=self.history, label_sources=["labels"]
            )
            self.ingestion.start(NOW)
        except BaseException:
            self.state.close()
            raise

    def tick(self) -> None:
        """Ingest everything available."""
        self.ingestion.tick(NOW, 0.0)

    def found(self) -> Found:
        """Return everything that was read, and what follows from it."""
        windows = {
            str(segment): (window.times.tobytes(), window.vectors().tobytes(), exact(window.totals()))
            for segment in self.model.windows
            for window in (self.model.windows[segment],)
        }
        snapshot = self.ingestion.view.snapshot("density", NOW, 0.0)
        assert snapshot.labels is not None
        labels = snapshot.labels.columns(len(snapshot.segments), 3).sums
        said: dict[str, object] = {
            "labels": [one.tolist() for one in (labels.records, labels.labels, labels.right, labels.classes)]
        }
        stored = self.ingestion.view.counters().stored()
        counters = {key: n for key, n in stored.items() if n and not key[0].startswith("state_")}
        names = [msgspec.json.encode(row.model) for row in self.state.history() if row is not None]
        series = {
            (segment, span): _values(self.history.series("density", segment, span))
            for segment in ("all", "site=A", "site=B")
            for span in Span
        }
        others = {
            "kept": {name: value for name, value in self.state.values().items() if not name.startswith("recovered")},
            "ids": [(one.model, one.number, one.hashes.tobytes()) for one in self.state.ids(self.model.hashes)],
            "rejected": self.state.rejected(),
            "events": self.logged,
            "history": (Counter(names), series),
        }
        positions = {b"lines": self.state.checkpoints("lines"), b"labels": self.state.checkpoints("labels")}
        return Found(windows | said, counters, positions, others)


@dataclass(frozen=True)
class Good:
    """Good states to be damaged, and their content."""

    folder: Path
    closed: Path
    killed: Path
    older: list[bytes]
    """Earlier versions of the database, oldest first."""
    expected: Mapping[bool, Story]

    def files(self, *, killed: bool) -> Path:
        """Return the folder of one of the two."""
        return self.killed if killed else self.closed


def make(folder: Path) -> Good:
    """Make good states: three runs, a backup in the second, and a fourth run that is killed."""
    state, older = folder / "state", []
    with patch.object(chunk_log, "_FAN", 8), patch.object(chunk_log, "_SPARE_RECORDS", 100):
        for number, (end, at_once) in enumerate(((400, 7), (900, 300), (1300, 40))):
            life = Life(state, LINES[:end], at_once)
            for turn in range(12):
                life.history.note(report((turn + number) / 32, 0.5, reference=f"{number:012x}"), START + 3600.0 * turn)
            life.ingestion.values.store(f"alert:{number}", bytes(range(number, number + 40)))
            life.state.commit(CommitPlan(events=[f"event {turn} of life {number}" for turn in range(20)]), NOW)
            life.tick()
            if number == 1:
                # With another commit before it: counters of evicted records are on disk one commit later.
                life.ingestion.values.store("alert:of the backup", b"ok")
                life.tick()
                life.state.back_up()
            life.ingestion.stop(NOW)
            life.state.close()
            older.append((state / DATABASE).read_bytes())
        closed = folder / "closed"
        shutil.copytree(state, closed)
        life = Life(state, LINES[:1450])
        life.tick()
        life.ingestion.values.store("alert:9", b"firing")
        life.tick()
        killed = folder / "killed"
        shutil.copytree(state, killed)
        life.state.close()
    good = Good(folder, closed, killed, older[:-1], {})
    stories = {of: _story(_copy(good.files(killed=of), folder / "undamaged")) for of in (False, True)}
    assert not any(story.problem for story in stories.values()), stories
    return Good(folder, closed, killed, older[:-1], stories)


def outcome(good: Good, damage: Damage) -> tuple[Outcome, str]:
    """Start a damaged copy, continue, restart, and compare."""
    copy = _copy(good.files(killed=damage.killed), good.folder / "damaged")
    if damage.content is None:
        (copy / damage.file).unlink()
    else:
        (copy / damage.file).write_bytes(damage.content)
    expected, story = good.expected[damage.killed], _story(copy)
    if story.problem:
        return Outcome.NO_START, story.problem
    new = [said for said in story.warnings if said not in expected.warnings]
    if story.found == expected.found:
        return (Outcome.NOTICED if new else Outcome.HARMLESS), "; ".join(new)
    if not new:
        return Outcome.SILENT, _difference(story, expected)
    gone = any("damaged chunks" in said for said in new)
    if not gone and not all(map(Found.agrees, story.found[1:], expected.found[1:])):
        return Outcome.SILENT, f"reported, but not exact: {_difference(story, expected)}: {new}"
    return Outcome.NOTICED, "; ".join(new)


def _copy(folder: Path, to: Path) -> Path:
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir()
    for file in folder.iterdir():
        # Large, and never written to.
        (os.link if file.name == "ballast" else shutil.copyfile)(file, to / file.name)
    return to


def _story(folder: Path) -> Story:
    """Start, read the rest and a little more, stop; start again."""
    story, handler, logger = Story(), _Warnings(), logging.getLogger("cpcmon")
    logger.addHandler(handler)
    lines, life = list(LINES), None
    try:
        try:
            life = Life(folder, lines)
            story.found.append(life.found())
            life.tick()
            story.found.append(life.found())
            lines.extend(MORE)
            life.tick()
            life.ingestion.stop(NOW)
            if life.ingestion.view.paused:
                story.problem = f"paused: {life.ingestion.view.paused}"
        except StateLost as lost:
            # The process ends, and is started again.
            if life is None:
                raise
            handler.said.append(str(lost))
        finally:
            if life is not None:
                life.state.close()
        lines.extend(MORE[len(lines) - len(LINES) :])
        again = Life(folder, lines)
        if again.state.recovered or again.state.damaged_chunks:
            handler.said.append("damaged at the second start")
            if life.state.recovered:
                story.problem = "damaged again, though it was replaced by the backup"
        again.tick()
        story.found.append(again.found())
        again.state.close()
    except Exception as error:  # noqa: BLE001 - whatever it is, it does not start
        story.problem = f"{type(error).__name__}: {error}"
    finally:
        logger.removeHandler(handler)
    story.warnings = handler.said
    return story


def _difference(story: Story, expected: Story) -> str:
    """Describe the differences."""
    said = []
    for number, (ours, theirs) in enumerate(zip(story.found, expected.found, strict=False)):
        for name in ("windows", "counters", "positions", "others"):
            one, other = getattr(ours, name), getattr(theirs, name)
            different = [key for key in {**one, **other} if one.get(key) != other.get(key)]
            said += [f"{number} {name} {different}"] if different else []
    return ", ".join(map(str, said))[:600]


def _values(series: Series | None) -> object:
    if series is None:
        return None
    columns = (
        series.at,
        series.accuracy,
        series.lower,
        series.upper,
        series.lowest,
        series.disagreement,
        series.records,
    )
    return [column.tobytes() for column in columns], series.states, series.references


# What can happen to a file.


def damages(good: Good, seed: int, many: int) -> Iterator[Damage]:
    """Yield damage of every kind, this many of each."""
    dice = random.Random(seed)  # noqa: S311
    whole = (good.closed / DATABASE).read_bytes()
    for kind, made in (
        ("bit anywhere", _bits(dice, whole, range(len(whole)), many)),
        ("bit in the header", _bits(dice, whole, range(100), many)),
        *((f"bit in {name}", _bits(dice, whole, places, many)) for name, places in _cells(good.closed, whole).items()),
        ("page zeroed", _pages(dice, whole, many, lambda _: bytes(PAGE))),
        ("page of noise", _pages(dice, whole, many, lambda _: dice.randbytes(PAGE))),
        ("pages swapped", _swapped(dice, whole, many)),
        ("page not written", _stale(dice, whole, good.older, many)),
        ("cut", ((f"at {cut}", whole[:cut]) for cut in _some(dice, range(len(whole)), many))),
    ):
        for where, content in made:
            yield Damage(kind, where, killed=False, file=DATABASE, content=content)
    yield from _of_killed(dice, good, many)


def _of_killed(dice: random.Random, good: Good, many: int) -> Iterator[Damage]:
    log, whole = ((good.killed / name).read_bytes() for name in (WAL, DATABASE))
    for kind, made in (
        ("bit in the log", _bits(dice, log, range(len(log)), many)),
        ("log cut", ((f"at {cut}", log[:cut]) for cut in _some(dice, range(len(log)), many))),
        ("log zeroed", _pages(dice, log, many, lambda _: bytes(PAGE))),
        ("log missing", [("", None)]),
    ):
        for where, content in made:
            yield Damage(kind, where, killed=True, file=WAL, content=content)
    for where, content in _bits(dice, whole, range(len(whole)), many):
        yield Damage("bit beside a log", where, killed=True, file=DATABASE, content=content)


def _some(dice: random.Random, places: range, many: int) -> list[int]:
    return sorted(dice.sample(places, min(many, len(places))))


def _bits(dice: random.Random, whole: bytes, places: Any, many: int) -> Iterator[tuple[str, bytes]]:
    for _ in range(many):
        place, bit = dice.choice(places), dice.randrange(8)
        changed = bytearray(whole)
        changed[place] ^= 1 << bit
        yield f"bit {bit} of byte {place} (page {place // PAGE + 1})", bytes(changed)


def _with_page(whole: bytes, number: int, page: bytes) -> bytes:
    return whole[: number * PAGE] + page + whole[(number + 1) * PAGE :]


def _pages(dice: random.Random, whole: bytes, many: int, make: Any) -> Iterator[tuple[str, bytes]]:
    for number in _some(dice, range(len(whole) // PAGE), many):
        yield f"page {number + 1}", _with_page(whole, number, make(number))


def _swapped(dice: random.Random, whole: bytes, many: int) -> Iterator[tuple[str, bytes]]:
    for _ in range(many):
        one, other = dice.sample(range(len(whole) // PAGE), 2)
        first, second = (whole[number * PAGE : (number + 1) * PAGE] for number in (one, other))
        yield f"pages {one + 1} and {other + 1}", _with_page(_with_page(whole, one, second), other, first)


def _stale(dice: random.Random, whole: bytes, older: list[bytes], many: int) -> Iterator[tuple[str, bytes]]:
    """Yield databases with one page of an earlier version: a lost write."""
    made = []
    for age, old in enumerate(older):
        for number in range(min(len(old), len(whole)) // PAGE):
            page = old[number * PAGE : (number + 1) * PAGE]
            if page != whole[number * PAGE : (number + 1) * PAGE]:
                made.append((f"page {number + 1} of life {age}", _with_page(whole, number, page)))
    return iter(dice.sample(made, min(many, len(made))))


def _cells(folder: Path, whole: bytes) -> dict[str, list[int]]:
    """Return by table and index the bytes of its live cells, likely ones more than once."""
    with closing(sqlite3.connect(f"file:{folder / DATABASE}?mode=ro&immutable=1", uri=True)) as connection:
        roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage > 0"))
    roots["sqlite_master"] = 1
    return {name: places for name, root in sorted(roots.items()) if (places := _cells_below(whole, root))}


def _cells_below(whole: bytes, number: int) -> list[int]:
    start = (number - 1) * PAGE
    head = start + (100 if number == 1 else 0)
    interior = whole[head] in {2, 5}
    count = int.from_bytes(whole[head + 3 : head + 5], "big")
    table = head + (12 if interior else 8)
    cells = sorted(start + int.from_bytes(whole[table + 2 * n : table + 2 * n + 2], "big") for n in range(count))
    ends = [*cells[1:], start + PAGE][:count]
    places = []
    for cell, end in zip(cells, ends, strict=True):
        # Its header and small columns as often as its content.
        places += [*range(cell, end), *[*range(cell, min(end, cell + _SMALL))] * ((end - cell) // _SMALL)]
    if interior:
        children = [int.from_bytes(whole[cell : cell + 4], "big") for cell in cells]
        for child in (*children, int.from_bytes(whole[head + 8 : head + 12], "big")):
            places += _cells_below(whole, child)
    return places


def tried(good: Good, seed: int, many: int) -> Iterator[tuple[Damage, Outcome, str]]:
    """Try damage of every kind, and yield the outcomes."""
    for damage in damages(good, seed, many):
        with suppress(FileNotFoundError):
            (good.folder / "damaged" / DATABASE).unlink()
        yield damage, *outcome(good, damage)
