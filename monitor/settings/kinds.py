"""Kinds of settings: the contract, strings, flags, paths, secrets, choices, numbers, durations and sizes."""

import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Generic, TypeVar

from monitor.errors import Problem, UsageError
from monitor.settings import expanded
from monitor.settings.yaml_text import (
    InvalidValue,
    Node,
    Scalar,
    SettingProblem,
    YamlList,
    YamlMap,
    describe,
    describe_type,
    is_null,
)

HIDDEN = "(hidden)"
"""Shown instead of passwords, keys, tokens, and URLs that may contain them."""


@dataclass(frozen=True, slots=True)
class Setting:
    """An effective setting."""

    path: str
    """Such as `models[0].window.records`."""
    value: str
    """As written in a file, or HIDDEN."""
    line: int | None
    """None for a default."""


T = TypeVar("T")


def invalid(node: Node, expected: str, advice: str = "", *, found: str | None = None) -> InvalidValue:
    """Return the error for an unexpected value, which is shown unless `found` replaces it."""
    shown = describe(node) if found is None else found
    return InvalidValue(SettingProblem("", expected, shown + (f": {advice}" if advice else ""), node.line))


class SettingKind(ABC, Generic[T]):
    """The kind of a setting: parses and shows values."""

    type_name: str
    """The name of the type in the documentation."""
    expected: str
    """The description in errors, with bounds."""
    placeholder: T
    """Any valid value, to continue after a problem."""

    @abstractmethod
    def read(self, node: Node) -> T:
        """Return the value; raises InvalidValue."""

    def show(self, value: T) -> str:
        """Return a value as written in a file."""
        return str(value)


class ListOf(SettingKind[tuple[T, ...]], Generic[T]):
    """A list of values of one kind; `expected` is such as "a list of names". With `or_one`, a single value is a list of one."""

    placeholder = ()

    def __init__(self, kind: SettingKind[T], expected: str, fewest: int = 0, *, or_one: bool = False) -> None:
        self.kind, self.expected, self.fewest, self.or_one = kind, expected, fewest, or_one
        self.type_name = f"list of {kind.type_name}s"

    def read(self, node: Node) -> tuple[T, ...]:
        """Return the values."""
        if self.or_one and isinstance(node, Scalar):
            return (self.kind.read(node),)
        if not isinstance(node, YamlList):
            raise invalid(node, self.expected)
        if len(node.nodes) < self.fewest:
            raise invalid(node, self.expected, found="an empty list")
        values, problems = list[T](), list[SettingProblem]()
        for place, item in enumerate(node.nodes):
            try:
                values.append(self.kind.read(item))
            except InvalidValue as error:
                problems.extend(problem.under(f"[{place}]") for problem in error.problems)
        if problems:
            raise InvalidValue(*problems)
        return tuple(values)

    def show(self, value: tuple[T, ...]) -> str:
        """Return the values in brackets."""
        return f"[{', '.join(self.kind.show(one) for one in value)}]"


class MapOf(SettingKind[dict[str, T]], Generic[T]):
    """A mapping of names to values of one kind."""

    def __init__(self, kind: SettingKind[T], name: SettingKind[str], expected: str) -> None:
        """`name` is the kind of the names, used only to show them."""
        self.kind, self.name, self.expected = kind, name, expected
        self.type_name, self.placeholder = f"{kind.type_name}s by name", {}

    def read(self, node: Node) -> dict[str, T]:
        """Return the values by name."""
        if not isinstance(node, YamlMap):
            raise invalid(node, self.expected, found=describe_type(node))
        values, problems = dict[str, T](), list[SettingProblem]()
        for name, entry in node.entries.items():
            try:
                values[name] = self.kind.read(entry.node)
            except InvalidValue as error:
                problems.extend(problem.under(f".{name}") for problem in error.problems)
        if problems:
            raise InvalidValue(*problems)
        return values

    def show(self, value: dict[str, T]) -> str:
        """Return the values in braces."""
        return "{" + ", ".join(f"{self.name.show(name)}: {self.kind.show(one)}" for name, one in value.items()) + "}"


E = TypeVar("E", bound=StrEnum)

# What some YAML parsers take for a number, a boolean or null.
_NOT_A_STRING = re.compile(
    r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|[-+]?0[xob][0-9a-fA-F_]+|[-+]?\.(inf|nan)"
    r"|true|false|null|~|",
    re.IGNORECASE,
)
_MOST_CHARACTERS = 4096


class Flag(SettingKind[bool]):
    """A boolean."""

    type_name = "`true` or `false`"
    expected = "true or false"
    placeholder = False

    def read(self, node: Node) -> bool:
        """Return the boolean; `yes`, `no`, `on` and `off` are rejected."""
        if isinstance(node, Scalar) and node.plain and node.text in {"true", "false"}:
            return node.text == "true"
        advice = ""
        if isinstance(node, Scalar) and node.text.lower() in {"yes", "on", "true", "no", "off", "false"}:
            advice = f"write {'true' if node.text.lower() in {'yes', 'on', 'true'} else 'false'}"
        raise invalid(node, self.expected, advice)

    def show(self, value: bool) -> str:  # noqa: FBT001  the value
        """Return `true` or `false`."""
        return "true" if value else "false"


class Text(SettingKind[str]):
    """A string of one line, optionally matching a pattern."""

    type_name = "text"
    placeholder = "?"

    def __init__(self, expected: str = "a string", form: re.Pattern[str] | None = None) -> None:
        self.expected, self.form = expected, form

    def read(self, node: Node) -> str:
        """Return the string. Anything that looks like a number must be quoted: 2.10 would become 2.1."""
        if not isinstance(node, Scalar) or is_null(node):
            raise invalid(node, self.expected)
        if node.plain and _NOT_A_STRING.fullmatch(node.text):
            raise invalid(node, self.expected, f'write it in quotes, "{node.text}"')
        if not node.text or not node.text.isprintable() or len(node.text) > _MOST_CHARACTERS:
            raise invalid(node, f"{self.expected} in one line of 1 to {_MOST_CHARACTERS:,} characters")
        if self.form is not None and not self.form.fullmatch(node.text):
            raise invalid(node, self.expected)
        return node.text

    def show(self, value: str) -> str:
        """Return the string, quoted where YAML could take it for another type."""
        if re.fullmatch(r"[A-Za-z_][\w./-]*", value) and not _NOT_A_STRING.fullmatch(value):
            return value
        # In double quotes a backslash starts an escape.
        return f'"{value}"' if '"' not in value and "\\" not in value else "'" + value.replace("'", "''") + "'"


class Secret(SettingKind[str]):
    """A string that is never shown."""

    placeholder = ""

    def __init__(self, expected: str, type_name: str = "text (secret)") -> None:
        self.expected, self.type_name = expected, type_name

    def read(self, node: Node) -> str:
        """Return the string."""
        try:
            return Text(self.expected).read(node)
        except InvalidValue as error:
            found = "nothing" if is_null(node) else "another value, not shown"
            raise invalid(node, self.expected, found=found) from error

    def show(self, value: str) -> str:  # noqa: ARG002  never shown
        """Return HIDDEN."""
        return HIDDEN


class FilePath(SettingKind[Path]):
    """A path, relative to the directory of the configuration. Expands `~` and environment variables."""

    type_name = "path"

    def __init__(self, folder: Path, expected: str = "a path") -> None:
        self.folder = self.placeholder = folder
        self.expected = expected

    def read(self, node: Node) -> Path:
        """Return the path."""
        try:
            return self.folder / expanded(Text(self.expected).read(node))
        except ValueError as error:
            raise invalid(node, self.expected, str(error)) from error

    def show(self, value: Path) -> str:
        """Return the path, relative to the directory of the configuration if it is below it."""
        return Text().show(str(value.relative_to(self.folder) if value.is_relative_to(self.folder) else value))


class SecretPath(FilePath):
    """The path of a secret file. Never shown: the secret itself may have been pasted in its place."""

    def read(self, node: Node) -> Path:
        """Return the path."""
        try:
            return self.folder / expanded(Secret(self.expected).read(node))
        except ValueError:
            # Not chained: the error quotes the setting.
            found = "an unknown home directory or environment variable"
            raise invalid(node, self.expected, found=found) from None

    def show(self, value: Path) -> str:  # noqa: ARG002  never shown
        """Return HIDDEN."""
        return HIDDEN


class OneOf(SettingKind[str]):
    """One of several words, with advice for certain other words."""

    def __init__(self, names: tuple[str, ...], advice: Mapping[str, str] | None = None) -> None:
        self.names, self.advice, self.placeholder = names, advice or {}, names[0]
        self.type_name = ", ".join(f"`{name}`" for name in names)
        self.expected = f"one of {', '.join(names)}" if len(names) > 1 else names[0]

    def read(self, node: Node) -> str:
        """Return the word."""
        if isinstance(node, Scalar) and node.text in self.names:
            return node.text
        text = node.text if isinstance(node, Scalar) else ""
        near = difflib.get_close_matches(text, self.names, 1)
        raise invalid(node, self.expected, self.advice.get(text, f"did you mean {near[0]}?" if near else ""))


class Choice(SettingKind[E], Generic[E]):
    """A member of an enumeration."""

    def __init__(self, members: type[E]) -> None:
        self.members, self.placeholder = members, next(iter(members))
        self._names = OneOf(tuple(str(member) for member in members))
        self.type_name, self.expected = self._names.type_name, self._names.expected

    def read(self, node: Node) -> E:
        """Return the member."""
        return self.members(self._names.read(node))


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")


def seconds(text: str, where: str) -> float:
    """Return a duration in seconds; `where` is the setting, for the error."""
    found = _FORM.fullmatch(text.strip())
    if found is None or float(found.group(1)) == 0.0:
        raise UsageError(Problem(where, "a duration such as 90s, 30m, 12h or 7d", repr(text)))
    return float(found.group(1)) * _UNITS[found.group(2)]


_PER = re.compile(r"([0-9]+(?:\.[0-9]+)?) +per +(day|week|month|year|[0-9.]+[smhdw])")
_PERIODS = {"day": "1d", "week": "1w", "month": "30d", "year": "365d"}


def seconds_per_time(text: str, where: str) -> float:
    """Return the seconds of a rate for one time: those of 45d for `2 per 90d`. `where` is the setting, for the error."""
    found = _PER.fullmatch(text.strip())
    if found is None or float(found.group(1)) == 0.0:
        raise UsageError(Problem(where, "a number per duration such as 1 per 90d or 2 per year", repr(text)))
    return seconds(_PERIODS.get(found.group(2), found.group(2)), where) / float(found.group(1))


_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
_LONGEST_NUMBER = 40


N = TypeVar("N", int, float)


class _Bounded(SettingKind[N], Generic[N]):
    """A number between bounds, both included."""

    def __init__(self, least: N, most: N) -> None:
        self.least: N = least
        self.most: N = most
        self.placeholder = least


class Integer(_Bounded[int]):
    """An integer between bounds, both included."""

    type_name = "integer"

    def __init__(self, least: int, most: int) -> None:
        super().__init__(least, most)
        self.expected = f"an integer from {least:,} to {most:,}"

    def read(self, node: Node) -> int:
        """Return the integer."""
        if not _is_written_as(node, _INTEGER):
            raise invalid(node, self.expected, _advice_on_numbers(node, whole=True))
        assert isinstance(node, Scalar)  # noqa: S101  only scalars match
        if not self.least <= int(node.text) <= self.most:
            raise invalid(node, self.expected)
        return int(node.text)


class Number(_Bounded[float]):
    """A number between bounds, both included."""

    def __init__(self, least: float = 0.0, most: float = 1.0) -> None:
        super().__init__(least, most)
        self.type_name = f"number from {least:g} to {most:g}"
        self.expected = f"a {self.type_name}"

    def read(self, node: Node) -> float:
        """Return the number."""
        if not _is_written_as(node, _NUMBER):
            raise invalid(node, self.expected, _advice_on_numbers(node, whole=False))
        assert isinstance(node, Scalar)  # noqa: S101  only scalars match
        value = float(node.text)
        if not self.least <= value <= self.most:
            is_percent = self.most == 1.0 and 1.0 < value <= 100.0
            raise invalid(node, self.expected, f"write {value / 100.0:g} for {value:g}%" if is_percent else "")
        return value

    def show(self, value: float) -> str:
        """Return the number without trailing zeros."""
        return _digits(value)


class Duration(_Bounded[float]):
    """A duration such as 90s, 30m, 12h or 7d, between bounds; in seconds."""

    type_name = "duration"

    def __init__(self, least: float, most: float) -> None:
        super().__init__(least, most)
        self.expected = f"a duration from {self.show(least)} to {self.show(most)}, such as 90s, 30m, 12h or 7d"

    def read(self, node: Node) -> float:
        """Return the seconds."""
        if not isinstance(node, Scalar):
            raise invalid(node, self.expected)
        try:
            # Whether 0 is allowed depends on the bounds.
            value = 0.0 if re.fullmatch(r"0[smhdw]", node.text) else seconds(node.text, "")
        except UsageError as error:
            is_bare = node.plain and _INTEGER.fullmatch(node.text) and len(node.text) < _LONGEST_NUMBER
            raise invalid(node, self.expected, f"write {node.text}s for seconds" if is_bare else "") from error
        if not self.least <= value <= self.most:
            raise invalid(node, self.expected)
        return value

    def show(self, value: float) -> str:
        """Return the duration in the largest unit without a fraction."""
        if value >= 120.0:
            for unit, length in (("d", 86400.0), ("h", 3600.0), ("m", 60.0)):
                if value % length == 0.0:
                    return f"{value / length:.0f}{unit}"
        return f"{_digits(value)}s"


class TimesPer(_Bounded[float]):
    """A number per duration such as 1 per 90d or 2 per year, between bounds; in seconds for one time."""

    type_name = "number per duration"

    def __init__(self, least: float, most: float) -> None:
        super().__init__(least, most)
        often, seldom = self.show(least), self.show(most)
        self.expected = f"a number per duration from {often} to {seldom}, such as 1 per 90d or 2 per year"

    def read(self, node: Node) -> float:
        """Return the seconds for one time."""
        if not isinstance(node, Scalar):
            raise invalid(node, self.expected)
        try:
            value = seconds_per_time(node.text, "")
        except UsageError as error:
            raise invalid(node, self.expected) from error
        if not self.least <= value <= self.most:
            raise invalid(node, self.expected)
        return value

    def show(self, value: float) -> str:
        """Return the duration for one time."""
        return f"1 per {Duration(0.0, 0.0).show(value)}"


_SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


class SizeSetting(_Bounded[int]):
    """A number of bytes such as 64KiB, 512MiB or 1GiB, between bounds."""

    type_name = "size"

    def __init__(self, least: int, most: int) -> None:
        super().__init__(least, most)
        self.expected = f"a size from {self.show(least)} to {self.show(most)}, such as 64KiB, 512MiB or 1GiB"

    def read(self, node: Node) -> int:
        """Return the bytes."""
        if not isinstance(node, Scalar):
            raise invalid(node, self.expected)
        form = re.fullmatch(r"([1-9][0-9]{0,15})([KMGT]?i?B|[kKMGT])?", node.text)
        if form is None:
            raise invalid(node, self.expected)
        number, unit = form.group(1), form.group(2) or "B"
        if form.group(2) not in _SIZES:
            raise invalid(node, self.expected, f"write {number}{unit[0].upper()}{'' if unit == 'B' else 'iB'}")
        if not self.least <= int(number) * _SIZES[unit] <= self.most:
            raise invalid(node, self.expected)
        return int(number) * _SIZES[unit]

    def show(self, value: int) -> str:
        """Return the size in the largest unit without a fraction."""
        unit, length = max((pair for pair in _SIZES.items() if value % pair[1] == 0), key=lambda pair: pair[1])
        return f"{value // length}{unit}"


def _digits(value: float) -> str:
    """Return a number without an exponent or trailing zeros."""
    text = f"{Decimal(repr(float(value))):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _is_written_as(node: Node, form: re.Pattern[str]) -> bool:
    return (
        isinstance(node, Scalar)
        and node.plain
        and len(node.text) <= _LONGEST_NUMBER
        and form.fullmatch(node.text) is not None
    )


def _advice_on_numbers(node: Node, *, whole: bool) -> str:
    """Return how to write a number; empty if it is none."""
    if not isinstance(node, Scalar) or len(node.text) > _LONGEST_NUMBER:
        return ""
    if not node.plain:
        return "write it without quotes" if (_INTEGER if whole else _NUMBER).fullmatch(node.text) else ""
    if re.fullmatch(r"-?0[0-9]+", node.text):
        return "write it without leading zeros"
    text, share = node.text.replace("_", "").replace(",", ""), node.text.endswith("%")
    try:
        value = float(text.removesuffix("%")) / (100.0 if share else 1.0)
    except ValueError:
        return ""
    if not abs(value) < 1e15 or (whole and value != int(value)):
        return ""
    return f"write {value:.0f}" if value == int(value) else f"write {value:g}"
