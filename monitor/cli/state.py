"""`cpcmon state`: show the content of a state directory that no other process uses."""

import argparse
import math
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from monitor.cli.parser import as_path
from monitor.cli.progress_bar import working
from monitor.core.segments import ALL, Segment, name_of
from monitor.errors import Problem, UsageError
from monitor.records.record_batch import Pointer
from monitor.sources.directory.file_checkpoint import display_name as file_display_name
from monitor.sources.directory.file_checkpoint import file_key
from monitor.state.commit_plan import display_name
from monitor.state.database import BACKUPS, NAME
from monitor.state.state_folder import read_hash_key
from monitor.state.store import State

_FILE = re.compile(r"file#[0-9a-f]{8}")


def register(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.description = (
        "Show the windows, counters, events and rejected records of a state directory."
        " While cpcmon uses it, read its rejected.jsonl instead."
    )
    parser.epilog = """\
examples:
  cpcmon state state
  cpcmon state state --inbox inbox --rejected 50
  cpcmon state state --inbox inbox --files
"""
    parser.add_argument("folder", type=as_path, help="the state directory")
    parser.add_argument("--rejected", type=int, default=10, metavar="N", help="rejected records to show (default: 10)")
    parser.add_argument(
        "--inbox", type=as_path, metavar="DIR", help="the watched directory; shows file names instead of hashes"
    )
    parser.add_argument(
        "--files",
        action="store_true",
        help="only list the files of --inbox with the names used in messages; works while cpcmon runs",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the content."""
    if not options.folder.is_dir():
        raise FileNotFoundError(f"{options.folder}: expected a state directory, found none")
    if options.files:
        return _list_files(options)
    if not any((options.folder / name).exists() for name in (NAME, *BACKUPS)):
        raise UsageError(
            Problem(
                str(options.folder), "the directory of `cpcmon watch --state` or of storage.path", f"one without {NAME}"
            )
        )
    with working(f"opening {options.folder}"):
        state = State.open(options.folder, allow_network=True, repair=False)
    try:
        _show_windows(state)
        print("\ncounters")
        for name, value in sorted(state.counters().items()):
            if value:
                print(f"  {value:>12,}  {' '.join(name)}")
        names = _names(options.inbox, state.key) if options.inbox else {}
        _show_rejected(state, options.rejected, names)
        events = state.past_events()
        if events:
            print("\nlatest events")
            for at, event in events[-10:]:
                print(f"  {_clock(at)}  {_FILE.sub(lambda file: names.get(file.group(), file.group()), event)}")
        if state.events:
            print("\n".join(["\nproblems", *(f"  {event}" for event in state.events)]))
    finally:
        state.close()
    return 0


def _show_windows(state: State) -> None:
    with working("reading the windows"):
        lines = [
            line for model in sorted({model for model, _ in state.window_names()}) for line in _about(state, model)
        ]
    print("\n".join(["windows", *lines]))


def _about(state: State, model: str) -> Iterator[str]:
    """Yield a line about each window of a model. A window may hold fewer records than are stored for it."""
    records, chunks, newest = Counter[Segment](), Counter[Segment](), dict[Segment, float]()
    for one in state.chunks(model):
        chunk = one.chunk
        parts = [(segment, (chunk.codes == code).any(axis=1)) for code, segment in enumerate(chunk.segments)]
        if ALL not in chunk.segments:
            parts.append((ALL, np.ones(len(chunk.at), dtype=np.bool_)))
        for segment, mine in parts:
            if mine.any():
                records[segment] += int(np.count_nonzero(mine))
                chunks[segment] += 1
                newest[segment] = max(newest.get(segment, -math.inf), float(chunk.at[mine].max()))
    for segment in (segment for name, segment in state.window_names() if name == model):
        times = f", newest {_clock(newest[segment])}" if segment in newest else ""
        counts = f"{records[segment]:,} records in {chunks[segment]:,} chunks"
        yield f"  {display_name(model)} {name_of(segment)}: {counts}{times}"


def _list_files(options: argparse.Namespace) -> int:
    if options.inbox is None:
        raise UsageError(Problem("--files", "the watched directory in --inbox", "none"))
    for called_, name in sorted(_names(options.inbox, read_hash_key(options.folder)).items(), key=lambda item: item[1]):
        print(f"{called_}  {name}")
    return 0


def _show_rejected(state: State, most: int, names: dict[str, str]) -> None:
    rejected = state.rejected()
    if not rejected:
        return
    reasons = Counter(str(pointer.reason) for *_, pointer in rejected)
    print(
        f"\nlatest {len(rejected):,} rejected records: {', '.join(f'{n:,} {why}' for why, n in reasons.most_common())}"
    )
    for at, source, origin, pointer in rejected[-most:] if most > 0 else []:
        where = names.get(origin, origin)
        expected = "" if pointer.expected is None else f", expected {pointer.expected}"
        print(f"  {_clock(at)}  {source}  {where}, {_place(origin, pointer)}: {pointer.reason}{expected}")


def _place(origin: str, pointer: Pointer) -> str:
    """Return the position of a record in a file or in a Kafka message."""
    shape = "" if pointer.shape is None else f" [{pointer.shape}]"
    if not _FILE.fullmatch(origin):
        # The offset has no thousands separators, so that it can be pasted into other tools.
        return f"offset {pointer.offset}, record {pointer.number:,} of a message of {pointer.length:,} bytes{shape}"
    bytes_ = "" if pointer.offset is None else f" (byte {pointer.offset:,}, {pointer.length:,} long)"
    return f"line or row {pointer.number:,}{bytes_}{shape}"


def _names(inbox: Path, key: bytes) -> dict[str, str]:
    """Return the files of a directory by the keyed hash used in messages."""
    return {
        file_display_name(file_key(file.relative_to(inbox), key)): _shown(file)
        for file in inbox.rglob("*")
        if file.is_file()
    }


def _shown(file: Path) -> str:
    """Return a file name that is safe to print: producers choose the names."""
    text = os.fsencode(file).decode("utf-8", "backslashreplace")
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
