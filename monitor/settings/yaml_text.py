"""YAML as a tree of strings with line numbers. The only module that imports PyYAML.

YAML's types are not used: in YAML, `no` is false, `12:30` is 750 and `010` is 8. Here a scalar is a string, and the kind of
the setting parses it. Anchors, aliases and tags are rejected: a few hundred bytes of aliases expand to gigabytes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import NoReturn, TypeAlias

import yaml

from monitor.errors import ConfigError, Problem

_MOST_LISTED = 100
"""Problems listed in one error."""


@dataclass(frozen=True, slots=True)
class SettingProblem(Problem):
    """A problem in a file of settings; `where` is a path such as `models[0].window.records`, or empty."""

    line: int

    def under(self, place: str) -> "SettingProblem":
        """Return the problem with a prefix to its path."""
        return replace(self, where=place + self.where)


class InvalidValue(Exception):
    """A value of the wrong kind, or YAML that cannot be parsed further."""

    def __init__(self, *problems: SettingProblem) -> None:
        super().__init__(*problems)
        self.problems = problems


def raise_problems(file: Path, problems: Iterable[SettingProblem]) -> NoReturn:
    """Raise one error that lists all problems by line."""
    ranked = sorted(set(problems), key=attrgetter("line", "where", "expected", "found"))
    sentences = [
        str(problem.under(f"{file}:{problem.line}" + (": " if problem.where else "")))
        for problem in ranked[:_MOST_LISTED]
    ]
    if len(ranked) > _MOST_LISTED:
        sentences.append(f"{file}: and {len(ranked) - _MOST_LISTED:,} more")
    sentences.append(f"{file}: {len(ranked):,} {'problem' if len(ranked) == 1 else 'problems'}")
    raise ConfigError("\n".join(sentences))


MOST_BYTES = 1 << 20
MOST_DEPTH = 50
_MOST_NODES = 200_000

# The C parser is fifty times faster, but not in every build of PyYAML.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value, as written."""

    text: str
    plain: bool
    """Whether it is unquoted."""
    line: int


@dataclass(frozen=True, slots=True)
class YamlList:
    """A list."""

    nodes: "tuple[Node, ...]"
    line: int


@dataclass(frozen=True, slots=True)
class Entry:
    """The value of a key."""

    line: int
    node: "Node"


@dataclass(frozen=True, slots=True)
class YamlMap:
    """Keys and values, in the order of the file."""

    entries: dict[str, Entry]
    line: int


Node: TypeAlias = Scalar | YamlList | YamlMap


def compose(raw: bytes, problems: list[SettingProblem]) -> Node | None:
    """Return the tree of a text; None if it is empty.

    Raises InvalidValue where parsing cannot go on; other problems are added to `problems`.
    """
    if len(raw) > MOST_BYTES:
        line = raw[:MOST_BYTES].count(b"\n") + 1
        raise InvalidValue(SettingProblem("", f"a file of at most {MOST_BYTES >> 20} MiB", "more", line))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InvalidValue(SettingProblem("", "UTF-8", f"the byte {raw[error.start]:#04x}", line)) from error
    try:
        return _Composer(yaml.parse(text, Loader=_LOADER), problems).document()
    except yaml.reader.ReaderError as error:
        line = text.encode()[: error.position].count(b"\n") + 1
        raise InvalidValue(SettingProblem("", "text", "a control character", line)) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = 1 if mark is None else mark.line + 1
        raise InvalidValue(
            SettingProblem("", "YAML", f"a syntax error: {error.problem or error.context}", line)
        ) from error


class _Composer:
    """Builds the tree from the events of the parser."""

    def __init__(self, events: Iterator[yaml.Event], problems: list[SettingProblem]) -> None:
        self._events = events
        self._problems = problems
        self._nodes = 0

    def document(self) -> Node | None:
        """Return the only document."""
        root: Node | None = None
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise InvalidValue(SettingProblem("", "one document", "a second one after ---", _line(event)))
            elif isinstance(event, yaml.NodeEvent):
                root = self._node(event, "", 1)
        return None if isinstance(root, Scalar) and root.plain and not root.text else root

    def _node(self, event: yaml.Event, path: str, depth: int) -> Node:
        line = _line(event)
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise InvalidValue(SettingProblem("", f"at most {_MOST_NODES:,} values", "more", line))
        if depth > MOST_DEPTH:
            raise InvalidValue(SettingProblem("", f"at most {MOST_DEPTH} levels", "more", line))
        if isinstance(event, yaml.AliasEvent):
            raise InvalidValue(SettingProblem(path, "no alias (*name): write the value out", "one", line))
        if getattr(event, "anchor", None) is not None:
            raise InvalidValue(
                SettingProblem(path, "no anchor (&name): write the value out where it is needed", "one", line)
            )
        if getattr(event, "tag", None) is not None:
            self._problems.append(SettingProblem(path, "no tag (!name)", "one", line))
        if isinstance(event, yaml.MappingStartEvent):
            return YamlMap(self._entries(path, depth), line)
        if isinstance(event, yaml.SequenceStartEvent):
            return YamlList(tuple(self._items(path, depth)), line)
        assert isinstance(event, yaml.ScalarEvent)  # noqa: S101  the only event left
        return Scalar(event.value, not event.style, line)

    def _items(self, path: str, depth: int) -> Iterator[Node]:
        for place, event in enumerate(self._events):
            if isinstance(event, yaml.SequenceEndEvent):
                return
            yield self._node(event, f"{path}[{place}]", depth + 1)

    def _entries(self, path: str, depth: int) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            line = _line(event)
            key = self._node(event, path, depth + 1)
            name = key.text if isinstance(key, Scalar) else ""
            below = f"{path}.{name}".removeprefix(".") if name.isprintable() else path
            node = self._node(next(self._events), below, depth + 1)
            if not isinstance(key, Scalar) or not _is_name(key):
                self._problems.append(SettingProblem(path, "a string as key", describe(key), line))
            elif name in entries:
                found = f"{describe(key)} again, after line {entries[name].line}"
                self._problems.append(SettingProblem(path, "each key once", found, line))
            else:
                entries[name] = Entry(line, node)
        return entries


def is_null(node: Node) -> bool:
    """Return whether a key has no value."""
    return isinstance(node, Scalar) and node.plain and node.text.lower() in {"", "~", "null"}


def describe(node: Node) -> str:
    """Return a value for a message: a number, a quoted string, or the type of anything else."""
    if isinstance(node, YamlList):
        return "a list"
    if isinstance(node, YamlMap):
        return "a mapping"
    if is_null(node):
        return "nothing"
    if node.plain and node.text.replace(".", "", 1).removeprefix("-").isdecimal() and len(node.text) <= 40:
        return node.text
    return repr(node.text if len(node.text) <= 40 else f"{node.text[:40]}…")


def describe_type(node: Node) -> str:
    """Return the type of a value, without its content: it may be a secret at the wrong level."""
    return "a single value" if isinstance(node, Scalar) and not is_null(node) else describe(node)


def _is_name(key: Scalar) -> bool:
    return key.text != "" and key.text.isprintable() and (not key.plain or not key.text[0].isdecimal())


def _line(event: yaml.Event) -> int:
    return 1 if event.start_mark is None else int(event.start_mark.line) + 1
