"""Whole lines of a file that may still grow: never half a line, never more memory than one block."""

from dataclasses import dataclass

from monitor.sources.system import System, read_fully

BLOCK_BYTES = 1 << 20
HEADER_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Lines:
    """What stands at a place in a file."""

    data: bytes = b""
    """Whole lines."""
    skipped: int = 0
    """Bytes of a line that is too long to be kept; it goes on after them."""
    unfinished: int = 0
    """Bytes of a line that has no newline yet; more than these may be there."""
    zeros: bool = False
    """Whether the next line holds zero bytes: its writer has not written it yet, or never will."""


def lines_at(
    system: System,
    file: int,
    offset: int,
    *,
    skipping: bool,
    max_line_bytes: int,
    zeros_until: int = 0,
    block_bytes: int = BLOCK_BYTES,
) -> Lines:
    """Return the whole lines that stand at a place, at most about a block of them.

    `skipping` says that the place lies within a line that is too long. Zero bytes before `zeros_until` are taken as
    they are. A block starts at the start of a line; for a line that is longer, more than a block is read.
    """
    # One more byte than a line may have: its newline.
    longest = max_line_bytes + 1
    length = min(block_bytes, longest)
    data = read_fully(system, file, length, offset)
    end = data.rfind(b"\n") + 1
    while not end and not skipping and len(data) == length < longest:
        length = min(4 * length, longest)
        data = read_fully(system, file, length, offset)
        end = data.rfind(b"\n") + 1
    # The rest of a line that is too long is refused whatever it holds; the lines after it are looked at.
    start = data.find(b"\n") + 1 if skipping else 0
    zero = data.find(0, max(start, zeros_until - offset))
    if zero >= 0 and (zero < end or not end) and not (skipping and not end):
        # Holes are filled in later by writers that write out of order, and by file systems that recover from a crash.
        end = data.rfind(b"\n", 0, zero) + 1
        return Lines(data[:end]) if end else Lines(unfinished=len(data), zeros=True)
    if end:
        return Lines(data[:end] if end < len(data) else data)
    if skipping or len(data) >= longest:
        return _skip(system, file, offset, data)
    return Lines(unfinished=len(data))


def _skip(system: System, file: int, offset: int, data: bytes) -> Lines:
    # Nothing but zeros up to the end of the file is room that was reserved for lines to come, not a line.
    if data and not data.strip(b"\0") and not read_fully(system, file, BLOCK_BYTES, offset + len(data)).strip(b"\0"):
        return Lines(unfinished=len(data), zeros=True)
    return Lines(skipped=len(data))


def header_of(system: System, file: int, max_line_bytes: int) -> bytes:
    """Return the first bytes of a file, which hold its header: the first line that is not blank."""
    start = read_fully(system, file, min(HEADER_BYTES, max_line_bytes + 1), 0)
    if b"\n" in start.lstrip() or len(start) > max_line_bytes:
        return start
    return read_fully(system, file, max_line_bytes + 1, 0)
