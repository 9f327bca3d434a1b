"""A group of settings, read key by key. Records every problem, and every setting that the code declares."""

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

from monitor.settings.kinds import Setting, SettingKind
from monitor.settings.yaml_text import InvalidValue, SettingProblem, YamlList, YamlMap, describe_type, is_null

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DeclaredSetting:
    """A setting that the code reads, with its default."""

    kind: SettingKind[Any]
    default: object
    required: bool

    def default_text(self) -> str:
        """Return the default as written in a file."""
        if self.required:
            return "required"
        return "none" if self.default is None else self.kind.show(self.default)


@dataclass(slots=True)
class SettingsFindings:
    """The results of reading a file, beside the settings."""

    problems: list[SettingProblem] = field(default_factory=list)
    declared: dict[str, DeclaredSetting] = field(default_factory=dict)
    """By path."""
    lines: dict[str, int] = field(default_factory=dict)
    """The line of each setting, by path."""
    remarks: list[str] = field(default_factory=list)
    """Warnings about valid settings."""
    sections: "list[Section]" = field(default_factory=list)

    def all_problems(self) -> list[SettingProblem]:
        """Return the problems, including unknown keys."""
        return [*self.problems, *(problem for section in self.sections for problem in section.unknown_keys())]


_REQUIRED: Any = object()
_MOST_COMPARED = 1_000
"""Unknown keys of one group that get a suggestion: finding one is slow."""


class Section:
    """A group of settings. In an absent group every setting has its default."""

    def __init__(
        self,
        findings: SettingsFindings,
        path: str,
        settings: YamlMap | None,
        line: int,
        parent: "Section | None" = None,
    ) -> None:
        self.findings = findings
        self.path = path
        self.clean = True
        """Whether it has no problems so far."""
        self.given = settings is not None
        self._entries = {} if settings is None else settings.entries
        self._parent = parent
        self._known: list[str] = []
        self._effective: dict[str, list[Setting | Section]] = {}
        """The settings and groups by key, in the order of declaration."""
        self._ignore_unknown = False
        findings.lines[path] = line
        findings.sections.append(self)

    def at(self, key: str) -> str:
        """Return the path of a key."""
        return f"{self.path}.{key}".removeprefix(".")

    def line(self, key: str) -> int:
        """Return the line of a key; the line of the group if the key is absent."""
        entry = self._entries.get(key)
        return self.findings.lines[self.path] if entry is None else entry.line

    def has(self, key: str) -> bool:
        """Return whether the file sets a key."""
        return key in self._entries and not is_null(self._entries[key].node)

    @overload
    def get(self, key: str, kind: SettingKind[T]) -> T: ...
    @overload
    def get(self, key: str, kind: SettingKind[T], default: T) -> T: ...
    @overload
    def get(self, key: str, kind: SettingKind[T], default: None) -> T | None: ...
    def get(self, key: str, kind: SettingKind[T], default: T | None = _REQUIRED) -> T | None:
        """Return a setting. Without a default it is required. After a problem, return a placeholder."""
        required = default is _REQUIRED
        path = self.at(key)
        self._known.append(key)
        self.findings.declared[path] = DeclaredSetting(kind, None if required else default, required)
        fallback = kind.placeholder if required else default
        entry = self._entries.get(key)
        if entry is None and not (required and self.given):
            if fallback is not None and not required:
                self._effective[key] = [Setting(path, kind.show(fallback), None)]
            return fallback
        if entry is not None and default is None and is_null(entry.node):
            return None
        if entry is None:
            self.report(key, kind.expected, "nothing")
            return fallback
        self.findings.lines[path] = entry.line
        try:
            value = kind.read(entry.node)
        except InvalidValue as error:
            for problem in error.problems:
                self._add(problem.under(path))
            return fallback
        self._effective[key] = [Setting(path, kind.show(value), entry.line)]
        return value

    def section(self, key: str, *, required: bool = False, optional: bool = False) -> "Section":
        """Return a group within this one. An optional group that is absent has no effective settings."""
        self._known.append(key)
        entry = self._entries.get(key)
        settings = YamlMap({}, self.line(key)) if required and self.given else None
        if entry is not None and is_null(entry.node):
            # All its lines are commented out.
            settings = YamlMap({}, entry.line)
        elif entry is not None and isinstance(entry.node, YamlMap):
            settings = entry.node
        elif entry is not None:
            self.report(key, "a mapping", describe_type(entry.node))
            settings = None
        found = Section(self.findings, self.at(key), settings, self.line(key), self)
        if found.given or not optional:
            self._effective[key] = [found]
        return found

    def sections(self, key: str, *, least: int = 0, most: int) -> "list[Section]":
        """Return the groups of a list of `least` to `most`."""
        self._known.append(key)
        entry = self._entries.get(key)
        expected = f"a list of {least} to {most}" if least else f"a list of at most {most}"
        if entry is None:
            if least:
                self.report(key, expected, "nothing")
            return []
        self.findings.lines[self.at(key)] = entry.line
        if not isinstance(entry.node, YamlList):
            advice = ": write [] for none" if is_null(entry.node) and not least else ""
            self.report(key, expected, describe_type(entry.node) + advice)
        elif not least <= len(entry.node.nodes) <= most:
            self.report(key, expected, f"{len(entry.node.nodes):,}")
        else:
            groups = list(self._groups(key, entry.node))
            self._effective[key] = [*groups]
            return groups
        return []

    def effective(self) -> "Iterator[Setting]":
        """Yield every setting in the order of the file; in each group, defaults come last."""
        given = [key for key in self._entries if key in self._effective]
        for key in dict.fromkeys([*given, *self._effective]):
            for one in self._effective[key]:
                if isinstance(one, Section):
                    yield from one.effective()
                else:
                    yield one

    def report(self, key: str, expected: str, found: str) -> None:
        """Report a problem with a key."""
        self._add(SettingProblem(self.at(key), expected, found, self.line(key)))

    def report_group(self, expected: str, found: str) -> None:
        """Report a problem with the whole group."""
        self._add(SettingProblem(self.path, expected, found, self.findings.lines[self.path]))

    def forbid(self, key: str, why: str) -> None:
        """Report a problem if a key is present that is not allowed here."""
        self._known.append(key)
        if key in self._entries:
            self.report(key, f"no {key}{why}", "one")

    def ignore_unknown_keys(self) -> None:
        """Do not report unknown keys: the group has another problem, which makes every key unknown."""
        self._ignore_unknown = True

    def unknown_keys(self) -> Iterator[SettingProblem]:
        """Yield a problem for each undeclared key, with a suggestion."""
        if self._ignore_unknown:
            return
        known = sorted(set(self._known))
        for place, (key, entry) in enumerate(self._entries.items()):
            if key in known:
                continue
            near = difflib.get_close_matches(key, known, 1) if place < _MOST_COMPARED else []
            expected = "a known setting" if near else f"one of {', '.join(known)}"
            found = repr(key if len(key) <= 40 else f"{key[:40]}…") + (f": did you mean {near[0]}?" if near else "")
            yield SettingProblem(self.path, expected, found, entry.line)

    def _groups(self, key: str, items: YamlList) -> "Iterator[Section]":
        for place, node in enumerate(items.nodes):
            path = f"{self.at(key)}[{place}]"
            if isinstance(node, YamlMap):
                yield Section(self.findings, path, node, node.line, self)
            else:
                self._add(SettingProblem(path, "a mapping", describe_type(node), node.line))

    def _add(self, problem: SettingProblem) -> None:
        self.findings.problems.append(problem)
        self._mark_invalid()

    def _mark_invalid(self) -> None:
        self.clean = False
        if self._parent is not None:
            self._parent._mark_invalid()  # noqa: SLF001  same class
