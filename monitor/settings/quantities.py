"""Settings that are numbers: integers, ratios, durations and sizes."""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Generic, TypeVar

from monitor.errors import UsageError
from monitor.settings.kinds import SettingKind, invalid
from monitor.settings.yaml_text import Node, Scalar

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")


def seconds(text: str, where: str) -> float:
    """Return a duration in seconds; `where` is the setting, for the error."""
    found = _FORM.fullmatch(text.strip())
    if found is None or float(found.group(1)) == 0.0:
        raise UsageError(f"{where}: expected a duration such as 90s, 30m, 12h or 7d, found {text!r}")
    return float(found.group(1)) * _UNITS[found.group(2)]


_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?")
_LONGEST_NUMBER = 40


N = TypeVar("N", int, float)


@dataclass(frozen=True)
class _Bounded(SettingKind[N], Generic[N]):
    """A number between bounds, both included."""

    least: N
    most: N

    @property
    def placeholder(self) -> N:
        """The least value."""
        return self.least


@dataclass(frozen=True)
class Integer(_Bounded[int]):
    """An integer between bounds, both included."""

    type_name = "integer"

    @property
    def expected(self) -> str:
        """With its bounds."""
        return f"an integer from {self.least:,} to {self.most:,}"

    def read(self, node: Node) -> int:
        """Return the integer."""
        if not _is_written_as(node, _INTEGER):
            raise invalid(node, self.expected, _advice_on_numbers(node, whole=True))
        assert isinstance(node, Scalar)  # noqa: S101  only scalars match
        if not self.least <= int(node.text) <= self.most:
            raise invalid(node, self.expected)
        return int(node.text)


@dataclass(frozen=True)
class Number(_Bounded[float]):
    """A number between bounds, both included."""

    least: float = 0.0
    most: float = 1.0

    @property
    def type_name(self) -> str:
        """With its bounds."""
        return f"number from {self.least:g} to {self.most:g}"

    @property
    def expected(self) -> str:
        """With its bounds."""
        return f"a number from {self.least:g} to {self.most:g}"

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


@dataclass(frozen=True)
class Duration(_Bounded[float]):
    """A duration such as 90s, 30m, 12h or 7d, between bounds; in seconds."""

    type_name = "duration"

    @property
    def expected(self) -> str:
        """With its bounds."""
        return f"a duration from {self.show(self.least)} to {self.show(self.most)}, such as 90s, 30m, 12h or 7d"

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


_SIZES = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


@dataclass(frozen=True)
class SizeSetting(_Bounded[int]):
    """A number of bytes such as 64KiB, 512MiB or 1GiB, between bounds."""

    type_name = "size"

    @property
    def expected(self) -> str:
        """With its bounds."""
        return f"a size from {self.show(self.least)} to {self.show(self.most)}, such as 64KiB, 512MiB or 1GiB"

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
