"""A group of settings that is read key by key; every mistake is noted, and so is everything that was asked for."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from monitor.settings.kinds import Setting, SettingKind, Unfit, is_nothing
from monitor.settings.yaml_text import Items, Problem, YamlSettings, kept_back

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked:
    """A setting that the code reads, with what it is when the file does not say."""

    kind: SettingKind[Any]
    default: object
    """None when there is none."""
    required: bool

    def default_text(self) -> str:
        """Return the default as a file would write it."""
        if self.required:
            return "required"
        return "none" if self.default is None else self.kind.show(self.default)


@dataclass(slots=True)
class SettingsFindings:
    """What came to light while a file was read."""

    problems: list[Problem] = field(default_factory=list)
    asked: dict[str, Asked] = field(default_factory=dict)
    """By path: the example and the page on the configuration are compared with it."""
    lines: dict[str, int] = field(default_factory=dict)
    """In which line each setting stands, for those who find mistakes later."""
    remarks: list[str] = field(default_factory=list)
    """What is allowed, but worth a thought."""
    sections: "list[Section]" = field(default_factory=list)

    def all_problems(self) -> list[Problem]:
        """Return the mistakes, the keys that nobody asked for among them."""
        return [*self.problems, *(problem for section in self.sections for problem in section.unknown_keys())]


_REQUIRED: Any = object()
_MOST_COMPARED = 1_000
"""Keys of one group for which a near one is looked for: it takes its time, and nobody reads more."""


class Section:
    """A group of settings, which may also be absent: then every setting in it has its default."""

    def __init__(
        self,
        findings: SettingsFindings,
        path: str,
        settings: YamlSettings | None,
        line: int,
        above: "Section | None" = None,
    ) -> None:
        self.findings = findings
        self.path = path
        self.clean = True
        """Whether no mistake has been found in it so far."""
        self.given = settings is not None
        self._entries = {} if settings is None else settings.entries
        self._above = above
        self._known: list[str] = []
        self._in_force: dict[str, list[Setting | Section]] = {}
        """By key: what holds, in the order in which it was asked for."""
        self._passed_over = False
        findings.lines[path] = line
        findings.sections.append(self)

    def at(self, key: str) -> str:
        """Return the path of a setting."""
        return f"{self.path}.{key}".removeprefix(".")

    def line(self, key: str) -> int:
        """Return the line of a setting; that of the group when it is not there."""
        entry = self._entries.get(key)
        return self.findings.lines[self.path] if entry is None else entry.line

    def has(self, key: str) -> bool:
        """Tell whether the file says something about a setting."""
        return key in self._entries and not is_nothing(self._entries[key].node)

    @overload
    def get(self, key: str, kind: SettingKind[T]) -> T: ...
    @overload
    def get(self, key: str, kind: SettingKind[T], default: T) -> T: ...
    @overload
    def get(self, key: str, kind: SettingKind[T], default: None) -> T | None: ...
    def get(self, key: str, kind: SettingKind[T], default: T | None = _REQUIRED) -> T | None:
        """Return a setting; without a default it is required, and after a mistake some value of its kind comes back."""
        required = default is _REQUIRED
        path = self.at(key)
        self._known.append(key)
        self.findings.asked[path] = Asked(kind, None if required else default, required)
        fallback = kind.stand_in if required else default
        entry = self._entries.get(key)
        if entry is None and not (required and self.given):
            if fallback is not None and not required:
                self._in_force[key] = [Setting(path, kind.show(fallback), None)]
            return fallback
        if entry is not None and default is None and is_nothing(entry.node):
            return None
        if entry is None:
            self.tell(key, kind.expected, "nothing")
            return fallback
        self.findings.lines[path] = entry.line
        try:
            value = kind.read(entry.node)
        except Unfit as error:
            for fault in error.faults:
                self._note(Problem(fault.line, path + fault.below, fault.expected, fault.found))
            return fallback
        self._in_force[key] = [Setting(path, kind.show(value), entry.line)]
        return value

    def section(self, key: str, *, required: bool = False, optional: bool = False) -> "Section":
        """Return a group of settings within this one; without an optional one there is nothing, not even defaults."""
        self._known.append(key)
        entry = self._entries.get(key)
        settings = YamlSettings({}, self.line(key)) if required and self.given else None
        if entry is not None and is_nothing(entry.node):
            # All its lines are commented out, as in a copy of the example.
            settings = YamlSettings({}, entry.line)
        elif entry is not None and isinstance(entry.node, YamlSettings):
            settings = entry.node
        elif entry is not None:
            self.tell(key, "a group of settings", kept_back(entry.node))
            settings = None
        found = Section(self.findings, self.at(key), settings, self.line(key), self)
        if found.given or not optional:
            self._in_force[key] = [found]
        return found

    def sections(self, key: str, *, least: int = 0, most: int) -> "list[Section]":
        """Return the groups of settings in a list of so many."""
        self._known.append(key)
        entry = self._entries.get(key)
        expected = f"a list of {least} to {most}" if least else f"a list of at most {most}"
        if entry is None:
            if least:
                self.tell(key, expected, "nothing")
            return []
        self.findings.lines[self.at(key)] = entry.line
        if not isinstance(entry.node, Items):
            found = kept_back(entry.node)
            self.tell(key, expected, f"{found}: write [] for none" if found == "nothing" and not least else found)
        elif not least <= len(entry.node.nodes) <= most:
            self.tell(key, expected, f"{len(entry.node.nodes):,}")
        else:
            groups = list(self._groups(key, entry.node))
            self._in_force[key] = [*groups]
            return groups
        return []

    def in_force(self) -> "Iterator[Setting]":
        """Yield every setting that holds, in the order of the file; after them, in each group, those it says nothing of."""
        given = [key for key in self._entries if key in self._in_force]
        for key in dict.fromkeys([*given, *self._in_force]):
            for one in self._in_force[key]:
                if isinstance(one, Section):
                    yield from one.in_force()
                else:
                    yield one

    def tell(self, key: str, expected: str, found: str) -> None:
        """Note a mistake in a setting."""
        self._note(Problem(self.line(key), self.at(key), expected, found))

    def tell_all(self, expected: str, found: str) -> None:
        """Note a mistake in the group as a whole."""
        self._note(Problem(self.findings.lines[self.path], self.path, expected, found))

    def refuse(self, key: str, why: str) -> None:
        """Note a mistake if a setting is there that makes no sense here."""
        self._known.append(key)
        if key in self._entries:
            self.tell(key, f"no {key}{why}", "one")

    def pass_over_rest(self) -> None:
        """Say nothing of the keys that nobody asked for: what is wrong with the group was told already."""
        self._passed_over = True

    def unknown_keys(self) -> Iterator[Problem]:
        """Yield the keys that nobody asked for, with the one that may be meant."""
        if self._passed_over:
            return
        known = sorted(set(self._known))
        for place, (key, entry) in enumerate(self._entries.items()):
            if key in known:
                continue
            near = difflib.get_close_matches(key, known, 1) if place < _MOST_COMPARED else []
            expected = "a known setting" if near else f"one of {', '.join(known)}"
            found = repr(key if len(key) <= 40 else f"{key[:40]}…") + (f": did you mean {near[0]}?" if near else "")
            yield Problem(entry.line, self.path, expected, found)

    def _groups(self, key: str, items: Items) -> "Iterator[Section]":
        for place, node in enumerate(items.nodes):
            path = f"{self.at(key)}[{place}]"
            if isinstance(node, YamlSettings):
                yield Section(self.findings, path, node, node.line, self)
            else:
                self._note(Problem(node.line, path, "a group of settings", kept_back(node)))

    def _note(self, problem: Problem) -> None:
        self.findings.problems.append(problem)
        self._spoil()

    def _spoil(self) -> None:
        self.clean = False
        if self._above is not None:
            self._above._spoil()  # noqa: SLF001  of its own kind
