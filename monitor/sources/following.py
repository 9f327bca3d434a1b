"""Follows the files of a directory from poll to poll: what changed, what went, and which file is which."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from monitor.sources.base import Delivery
from monitor.sources.counted import Counted
from monitor.sources.desk import Desk
from monitor.sources.identity import SMALL_BYTES, Change, Look, PrefixCheck, change, quickly_matches
from monitor.sources.ledger import Keys, Row, State, called
from monitor.sources.matching import Loose, LooseRows, Match, Stray
from monitor.sources.opening import Folder, Refused, is_missing
from monitor.sources.scan import Found, Listing, Roster
from monitor.sources.settled import SettledReader
from monitor.sources.tracked import Tracked

CROWD = 10_000
"""Files that are looked at in each poll; of more than these, the ones that do not change are looked at more rarely."""
_ATTENTION_SECONDS = 3600.0
"""How long after its last change a file is looked at in each poll."""
ADOPTION_SECONDS = 600.0
"""How long a row whose file went or began anew waits for a file of another name that continues it."""


@dataclass(slots=True)
class _Findings:
    """What one round of looks brought to light."""

    strangers: list[Stray] = field(default_factory=list)
    """Names that another file has now."""
    anew: list[tuple[Tracked, Look, Counted]] = field(default_factory=list)
    """Files that were truncated or rewritten in place."""
    tails: list[Tracked] = field(default_factory=list)
    """Files whose last line has been unfinished for long."""
    touched: list[Tracked] = field(default_factory=list)
    """Files that are what they were, with another time of change."""
    vanished: list[Tracked] = field(default_factory=list)
    returned: list[Tracked] = field(default_factory=list)
    """Files that had been gone."""
    unknown: list[Stray] = field(default_factory=list)
    """New files, looked at because a row waits for its file."""


class Follower:
    """Keeps the files that are followed."""

    def __init__(self, desk: Desk, roster: Roster, keys: Keys, settled: SettledReader) -> None:
        self.active: dict[str, Tracked] = {}
        self.new: list[Found] = []
        """Files that grow and of which nothing has been read: opened when their turn comes, not before."""
        self.finishable: dict[str, bytes] = {}
        """Files that have been read and no longer change."""
        self._desk = desk
        self._roster = roster
        self._keys = keys
        self._settled = settled
        self._unplaced: set[bytes] = set()
        """Rows whose file has not been seen since the start."""
        self._missed: set[bytes] = set()
        """Rows whose file one listing left out. A listing may miss a file while the directory changes."""
        self._gone: dict[bytes, float] = {}
        self._former: dict[bytes, float] = {}
        """Rows that hold a former row, and rows recently gone, until when they wait for their file."""

    def restore(self) -> None:
        """Begin with the rows of the ledger."""
        self._unplaced = set(self._desk.ledger)
        for key in self._unplaced:
            row = self._desk.ledger.row(key)
            if row is not None and row.gone_at is not None:
                self._gone[key] = row.gone_at
            if row is not None and row.previous is not None:
                self._former[key] = self._desk.monotonic() + ADOPTION_SECONDS
        self._unplaced -= self._gone.keys()

    def reload(self, keys: set[bytes]) -> None:
        """Forget what was concluded from rows that have been taken back."""
        self._roster.forget(keys)
        self._settled.close()
        self.finishable.clear()
        for name, tracked in list(self.active.items()):
            if tracked.key in keys:
                del self.active[name]
        for key in keys:
            row = self._desk.ledger.row(key)
            self._gone.pop(key, None)
            if row is None:
                self._unplaced.discard(key)
            elif row.gone_at is not None:
                self._gone[key] = row.gone_at
            else:
                self._unplaced.add(key)

    def again(self) -> tuple[str, ...]:
        """Return how names start that are to be looked at even if they were ignored so far.

        Rotation copies `f` to `f.1` before it truncates `f`, so the copy may have been seen when it meant nothing.
        """
        if not self._former:
            return ()
        return tuple(tracked.name for tracked in self.active.values() if tracked.key in self._former)

    # Where files come from

    def examine(self, folder: Folder, listing: Listing, turn: int) -> Iterator[Delivery]:
        """Look at all files that may have changed, and deliver what that says of their identity."""
        findings = _Findings()
        followed = list(self.active.values())
        foreign = self._place(folder, listing, turn, findings)
        for tracked in followed:
            if tracked.seen == turn or not self._is_gone(folder, tracked):
                self._look_at(folder, tracked, findings, marked=tracked.name in listing.markers)
            else:
                findings.vanished.append(tracked)
        for found in listing.due:
            key = self._keys(found.name)
            row = self._desk.ledger.row(key)
            format_ = row.format if row is not None else self._roster.format_of(found.name)
            if format_ is not None:
                tracked = Tracked(found.name, key, format_, found.entry, row, seen=turn)
                self._look_at(folder, tracked, findings, marked=found.name in listing.markers, quiet=True)
        yield from self._conclude(folder, listing, findings, foreign)

    def _place(self, folder: Folder, listing: Listing, turn: int, findings: _Findings) -> list[Found]:
        """Sort fresh names into files with a row, new files, and those that are not meant; return the latter."""
        foreign: list[Found] = []
        self.new = []
        for found in listing.fresh:
            key = self._keys(found.name)
            self._unplaced.discard(key)
            row = self._desk.ledger.row(key)
            format_ = row.format if row is not None else self._roster.format_of(found.name)
            if format_ is None:
                foreign.append(found)
            elif row is None and format_.grows:
                self.new.append(found)
            else:
                tracked = Tracked(found.name, key, format_, found.entry, row, seen=turn)
                tracked.proven = found.name in listing.renamed
                if row is not None and row.gone_at is not None:
                    findings.returned.append(tracked)
                self._look_at(folder, tracked, findings, marked=found.name in listing.markers, quiet=True)
        return foreign

    def _is_gone(self, folder: Folder, tracked: Tracked) -> bool:
        try:
            folder.look(tracked.name)
        except OSError as error:
            return is_missing(error)
        except Refused:
            return False
        return False

    def _look_at(
        self, folder: Folder, tracked: Tracked, findings: _Findings, *, marked: bool, quiet: bool = False
    ) -> None:
        """Look at one file; `quiet` ones are followed only if there is a reason to."""
        desk = self._desk
        if tracked.wait_until > desk.clock:
            return
        try:
            look = folder.look(tracked.name)
            self._compare(folder, tracked, look, findings, marked=marked)
        except Refused as refused:
            desk.refuse(tracked.key, tracked.entry, refused.refusal)
            self._roster.ignore(tracked.name, tracked.entry)
            self._roster.wake(tracked.name, tracked.entry)
            findings.vanished.append(tracked)
            return
        except OSError as error:
            if is_missing(error):
                findings.vanished.append(tracked)
                return
            desk.unreadable(tracked, error)
        if not self.rest(tracked, quiet=quiet):
            self._roster.wake(tracked.name, tracked.entry)
            self.active[tracked.name] = tracked

    def _compare(self, folder: Folder, tracked: Tracked, look: Look, findings: _Findings, *, marked: bool) -> None:
        desk, row = self._desk, tracked.row
        before = tracked.look or row
        if before is not None and look.inode != before.inode and row is not None:
            findings.strangers.append(Stray(tracked.name, tracked.key, tracked.entry, look, tracked))
        elif not tracked.grows:
            if row is None and tracked.look is None:
                findings.unknown.append(Stray(tracked.name, tracked.key, tracked.entry, look, tracked))
            self._settled.examine(tracked, look, marked=marked)
        elif row is None or before is None:
            if tracked.sees(look, desk.clock):
                tracked.unread = look.size > 0
            self._watch_tail(tracked, look, findings)
        else:
            self._compare_growing(folder, tracked, row, before, look, findings)

    def _compare_growing(
        self, folder: Folder, tracked: Tracked, row: Row, before: Look | Row, look: Look, findings: _Findings
    ) -> None:
        what = change(row, before, look)
        if what is Change.SHRUNK:
            findings.anew.append((tracked, look, Counted.FILES_TRUNCATED))
        elif what is Change.NONE and not tracked.doubtful:
            if tracked.look is None:
                tracked.sees(look, self._desk.clock)
                tracked.unread = row.offset < look.size and row.state is not State.FAILED
            self._watch_tail(tracked, look, findings)
        elif not _matches(folder, tracked, row):
            findings.anew.append((tracked, look, Counted.FILES_REPLACED))
        else:
            self._accept(tracked, row, look, thoroughly=what is not Change.GROWN)
            if what is Change.TOUCHED and tracked.check is None:
                tracked.row = self._desk.seen_row(row, look)
                findings.touched.append(tracked)

    def _accept(self, tracked: Tracked, row: Row, look: Look, *, thoroughly: bool) -> None:
        """Go on with a file that seems to be the one it was; compare all of it first if there is a doubt."""
        tracked.sees(look, self._desk.clock)
        tracked.doubtful = False
        if thoroughly and row.offset > SMALL_BYTES:
            tracked.check, tracked.adopts = PrefixCheck(row.offset, row.checksum), None
        tracked.unread = look.size > row.offset or tracked.check is not None

    def _watch_tail(self, tracked: Tracked, look: Look, findings: _Findings) -> None:
        """Notice an unfinished last line, or zero bytes, that have been there for long."""
        desk = self._desk
        timeout = desk.options.partial_timeout_seconds
        if tracked.zeros_at >= 0 and desk.clock - tracked.zeros_since >= timeout:
            tracked.unread = True
        if not tracked.unfinished or tracked.unread or desk.clock - tracked.since < timeout:
            return
        row = tracked.row or desk.new_row(tracked, look)
        if not row.partial:
            tracked.row = msgspec.structs.replace(row, partial=True)
            findings.tails.append(tracked)

    # What may rest

    def rest(self, tracked: Tracked, *, quiet: bool = False) -> bool:
        """Stop looking at a file in each poll, if it gives no reason to; tell whether it rests."""
        if self._is_busy(tracked, quiet=quiet):
            return False
        if tracked.row is not None and self._is_finished(tracked, tracked.row):
            self.finishable[tracked.name] = tracked.key
        self._roster.settle(tracked.name, tracked.entry, tracked.key)
        self.active.pop(tracked.name, None)
        return True

    def _is_busy(self, tracked: Tracked, *, quiet: bool) -> bool:
        """Tell whether a file is to be looked at in the next poll."""
        desk, row, look = self._desk, tracked.row, tracked.look
        waits = tracked.check is not None or tracked.failed_at is not None or tracked.wait_until > desk.clock
        if look is None or waits or tracked.unread or tracked.doubtful:
            return True
        if row is None:
            return look.size > 0 or (not quiet and desk.clock - tracked.since < desk.options.restat_seconds)
        if not tracked.grows:
            return row.state is State.READING or not look.same(row)
        if row.state is State.FAILED or self._is_finished(tracked, row):
            return False
        if tracked.unfinished and not row.partial:
            return True
        return desk.now - row.changed_at < _ATTENTION_SECONDS and len(self.active) < CROWD

    def _is_finished(self, tracked: Tracked, row: Row) -> bool:
        return (
            tracked.look is not None
            and (row.state is not State.READING or row.offset == tracked.look.size)
            and self._desk.now - row.changed_at >= self._desk.options.finish_after_seconds
        )

    # Which file is which

    def _conclude(
        self, folder: Folder, listing: Listing, findings: _Findings, foreign: list[Found]
    ) -> Iterator[Delivery]:
        positions: dict[bytes, bytes | None] = {}
        missing = [*listing.missing, *self._unplaced]
        loose = self._loose(findings, missing)
        strays = [*findings.strangers, *findings.unknown]
        if loose:
            strays += self._strays(folder, foreign)
        matches = loose.matches(folder, strays) if loose else []
        taken = {match.loose.key for match in matches if match.certain and not match.loose.former}
        gained = {match.stray.key for match in matches}
        self._begin_anew(folder, findings, taken, gained, positions)
        for tracked in findings.returned:
            self._gone.pop(tracked.key, None)
            if tracked.row is not None and tracked.key not in gained | taken:
                tracked.row = msgspec.structs.replace(tracked.row, gone_at=None)
                positions[tracked.key] = self._desk.ledger.put(tracked.key, tracked.row)
        for tracked in findings.touched:
            positions[tracked.key] = self._desk.ledger.put(tracked.key, tracked.row)
        for tracked in findings.tails:
            positions[tracked.key] = self._desk.ledger.put(tracked.key, tracked.row)
            self._desk.counted[Counted.PARTIAL_TAIL] += 1
        self._note_vanished(folder, findings.vanished, missing, taken, positions)
        for match in matches:
            self._adopt(match, positions)
        for found in foreign:
            self._ignore(found, gained)
        if positions:
            yield self._desk.delivery(positions=positions)

    def _loose(self, findings: _Findings, missing: list[bytes]) -> LooseRows:
        """Collect the rows that wait for their file."""
        loose = LooseRows()
        ledger, clock = self._desk.ledger, self._desk.clock
        for tracked in [*findings.vanished, *(stray.tracked for stray in findings.strangers)]:
            if tracked is not None and tracked.row is not None:
                loose.add(Loose(tracked.key, tracked.row))
        for tracked, _, _ in findings.anew:
            if tracked.row is not None:
                loose.add_copied(Loose(tracked.key, tracked.row))
        for key in missing:
            if (row := ledger.row(key)) is not None:
                loose.add(Loose(key, row))
        for key, until in list(self._former.items()):
            row = ledger.row(key)
            if row is None or until < clock:
                del self._former[key]
            elif row.previous is not None:
                loose.add_copied(Loose(key, row.previous, former=True))
            elif row.gone_at is not None:
                loose.add(Loose(key, row))
        return loose

    def _strays(self, folder: Folder, foreign: list[Found]) -> list[Stray]:
        """Look at all new names: one of them may be the file that a row waits for."""
        strays = []
        for found in [*self.new, *foreign]:
            try:
                strays.append(Stray(found.name, self._keys(found.name), found.entry, folder.look(found.name)))
            except (OSError, Refused):
                continue
        return strays

    def _begin_anew(
        self,
        folder: Folder,
        findings: _Findings,
        taken: set[bytes],
        gained: set[bytes],
        positions: dict[bytes, bytes | None],
    ) -> None:
        """Reset the rows of files that hold something else now."""
        desk = self._desk
        anew = list(findings.anew)
        for stray in findings.strangers:
            tracked = stray.tracked
            if tracked is None or tracked.row is None or tracked.key in gained:
                continue
            row = tracked.row
            if tracked.key in taken:
                tracked.row = None
                positions[tracked.key] = desk.ledger.put(tracked.key, None)
                tracked.sees(stray.look, desk.clock)
                tracked.unread, tracked.unfinished = tracked.grows and stray.look.size > 0, 0
            elif not tracked.grows:
                self._settled.examine(tracked, stray.look, marked=False)
            elif stray.look.size < row.offset or not _matches(folder, tracked, row):
                anew.append((tracked, stray.look, Counted.FILES_REPLACED))
            else:
                self._accept(tracked, row, stray.look, thoroughly=True)
                positions[tracked.key] = desk.ledger.put(tracked.key, desk.seen_row(row, stray.look))
                tracked.row = desk.seen_row(row, stray.look)
            self.active[tracked.name] = tracked
        for tracked, look, why in anew:
            if tracked.key not in gained:
                self.begin_anew(tracked, look, why, positions, keep=tracked.key not in taken)

    def begin_anew(
        self, tracked: Tracked, look: Look, why: Counted, positions: dict[bytes, bytes | None], *, keep: bool = True
    ) -> None:
        """Start a file from its beginning; `keep` its row for a copy that may continue it."""
        desk, old = self._desk, tracked.row
        row = desk.new_row(tracked, look)
        if old is not None:
            former = msgspec.structs.replace(old, previous=None) if keep and old.offset else None
            row = msgspec.structs.replace(row, generation=old.generation + 1, previous=former)
        if row.previous is not None:
            self._former[tracked.key] = desk.clock + ADOPTION_SECONDS
        desk.counted[why] += 1
        desk.tell(f"{called(tracked.key)}: {why.removeprefix('files_')}, and read from its start")
        tracked.row = row
        tracked.sees(look, desk.clock)
        tracked.unread, tracked.doubtful, tracked.check, tracked.unfinished = look.size > 0, False, None, 0
        tracked.zeros_at = -1
        positions[tracked.key] = desk.ledger.put(tracked.key, row)
        self._roster.wake(tracked.name, tracked.entry)
        self.active[tracked.name] = tracked

    def _adopt(self, match: Match, positions: dict[bytes, bytes | None]) -> None:
        """Let a file go on with the row of another name, at once or when all of it has been compared."""
        stray, loose = match.stray, match.loose
        self.new = [found for found in self.new if found.name != stray.name]
        tracked = stray.tracked or Tracked(stray.name, stray.key, loose.row.format, stray.entry)
        tracked.format, tracked.look = loose.row.format, None
        tracked.sees(stray.look, self._desk.clock)
        self._roster.wake(stray.name, stray.entry)
        self.active[stray.name] = tracked
        if match.certain:
            self.adopt(tracked, loose.key, loose.row, positions, former=loose.former)
        else:
            tracked.row, tracked.adopts, tracked.unread = None, loose.key, True
            tracked.check = PrefixCheck(loose.row.offset, loose.row.checksum)

    def adopt(
        self, tracked: Tracked, key: bytes, row: Row, positions: dict[bytes, bytes | None], *, former: bool
    ) -> None:
        """Give a row to the file that continues it."""
        desk = self._desk
        if former:
            own = desk.ledger.row(key)
            if own is not None:
                own = msgspec.structs.replace(own, previous=None)
                positions[key] = desk.ledger.put(key, own)
                for other in self.active.values():
                    if other.key == key:
                        other.row = own
        elif key not in positions:
            positions[key] = desk.ledger.put(key, None)
        self._former.pop(key, None)
        self._gone.pop(key, None)
        self._unplaced.discard(key)
        look = tracked.look
        tracked.row = msgspec.structs.replace(row, previous=None, gone_at=None)
        if look is not None:
            tracked.row = desk.seen_row(tracked.row, look)
            tracked.unread = look.size > row.offset if tracked.grows else row.state is State.READING
        tracked.unfinished, tracked.doubtful = 0, False
        positions[tracked.key] = desk.ledger.put(tracked.key, tracked.row)
        desk.counted[Counted.FILES_ADOPTED] += 1

    def verify(self, folder: Folder, tracked: Tracked, check: PrefixCheck) -> Iterator[Delivery]:
        """Go on comparing a file with what was read of it, and act on the result once there is one."""
        desk = self._desk
        try:
            with folder.opened(tracked.name) as (file, look):
                if tracked.look is None or look.inode != tracked.look.inode:
                    return
                before = check.done
                result = check.step(desk.system, file, desk.options.bytes_per_file)
                desk.left -= check.done - before
        except Refused:
            return
        except OSError as error:
            if not is_missing(error):
                desk.unreadable(tracked, error)
            return
        if result is None:
            return
        tracked.check = None
        positions: dict[bytes, bytes | None] = {}
        if tracked.adopts is not None:
            self._end_adoption(tracked, tracked.adopts, check, positions, matches=result)
        elif not result:
            self.begin_anew(tracked, look, Counted.FILES_REPLACED, positions)
        elif tracked.row is not None:
            tracked.unread = look.size > tracked.row.offset
            tracked.row = desk.seen_row(tracked.row, tracked.look)
            positions[tracked.key] = desk.ledger.put(tracked.key, tracked.row)
        if positions:
            yield desk.delivery(called(tracked.key), positions)

    def _end_adoption(
        self,
        tracked: Tracked,
        key: bytes,
        check: PrefixCheck,
        positions: dict[bytes, bytes | None],
        *,
        matches: bool,
    ) -> None:
        tracked.adopts = None
        own = self._desk.ledger.row(key)
        former = None if own is None else own.previous
        if matches and former is not None and (former.offset, former.checksum) == (check.length, check.expected):
            self.adopt(tracked, key, former, positions, former=True)
        elif self._roster.format_of(tracked.name) is None:
            del self.active[tracked.name]
            self._ignore(Found(tracked.name, tracked.entry), set())

    # What went

    def _note_vanished(
        self,
        folder: Folder,
        vanished: list[Tracked],
        missing: list[bytes],
        taken: set[bytes],
        positions: dict[bytes, bytes | None],
    ) -> None:
        ledger = self._desk.ledger
        gone: list[tuple[bytes, Row]] = []
        for tracked in vanished:
            self.active.pop(tracked.name, None)
            self._settled.drop(tracked.key)
            self._roster.wake(tracked.name, tracked.entry)
            if tracked.key not in taken:
                self._desk.counted[Counted.LOST_BYTES] += tracked.unread_bytes
                if tracked.row is not None:
                    gone.append((tracked.key, tracked.row))
        twice = [key for key in missing if key in self._missed]
        self._missed = set(missing) - set(twice)
        self._roster.forget(set(twice) | (taken & set(missing)))
        self._unplaced -= set(twice)
        gone += [(key, row) for key in twice if key not in taken and (row := ledger.row(key)) is not None]
        for key, row in gone:
            # Under an empty mount point, another device shows: the files are elsewhere, not gone.
            if row.device == folder.identity[0] and row.gone_at is None:
                positions[key] = ledger.put(key, msgspec.structs.replace(row, gone_at=self._desk.now))
                self._gone[key] = self._desk.now
                self._former[key] = self._desk.clock + ADOPTION_SECONDS
                self._desk.counted[Counted.FILES_GONE] += 1
        if not self._desk.counted[Counted.LOST_BYTES]:
            del self._desk.counted[Counted.LOST_BYTES]

    def forget_gone(self, folder: Folder) -> Iterator[Delivery]:
        """Forget files that have been gone for long, from a directory that could be listed all the while."""
        desk = self._desk
        oldest = desk.now - desk.options.forget_after_seconds
        positions: dict[bytes, bytes | None] = {}
        for key, gone_at in list(self._gone.items()):
            row = desk.ledger.row(key)
            if gone_at <= oldest and row is not None and row.device == folder.identity[0]:
                del self._gone[key]
                positions[key] = desk.ledger.put(key, None)
        if positions:
            desk.counted[Counted.FILES_FORGOTTEN] += len(positions)
            yield desk.delivery(positions=positions)

    def _ignore(self, found: Found, gained: set[bytes]) -> None:
        """Count a file that is not meant to be read, once."""
        key = self._keys(found.name)
        if key in gained:
            return
        self._roster.ignore(found.name, found.entry)
        if self._roster.is_meant(found.name) and self._desk.once(("unknown", key)):
            self._desk.counted[Counted.UNKNOWN_EXTENSION] += 1


def _matches(folder: Folder, tracked: Tracked, row: Row) -> bool:
    with folder.opened(tracked.name) as (file, _):
        return quickly_matches(folder.system, file, row)
