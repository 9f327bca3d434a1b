"""The types of a setting: the contract, texts, flags, paths, secrets and choices."""

import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeVar

from monitor.settings.paths import expanded
from monitor.settings.yaml_text import Items, Node, Scalar, YamlSettings, kept_back, shown

HIDDEN = "(hidden)"
"""Stands in place of what nobody should read: passwords, keys, tokens, addresses that may hold them."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting."""

    path: str
    """As messages name it: `models[0].window.records`."""
    value: str
    """As a file would write it, or HIDDEN."""
    line: int | None
    """Where the file says so; None where it says nothing, and this is the default."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a value."""

    expected: str
    found: str
    line: int
    below: str = ""
    """Which part of the setting, as `[2]`."""

    def under(self, place: str) -> "Fault":
        """Return the fault as one of a part of something larger."""
        return replace(self, below=place + self.below)


class Unfit(Exception):
    """A value that is not of the kind that a setting needs."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__(*(fault.expected for fault in faults))
        self.faults = faults


def unfit(node: Node, expected: str, advice: str = "") -> Unfit:
    """Return what to raise for a value that is something else than expected."""
    return Unfit(Fault(expected, shown(node) + (f": {advice}" if advice else ""), node.line))


def is_nothing(node: Node) -> bool:
    """Tell whether a key stands there without a value."""
    return isinstance(node, Scalar) and shown(node) == "nothing"


class SettingKind(ABC, Generic[T]):
    """What a setting may be."""

    @property
    @abstractmethod
    def word(self) -> str:
        """What the page on the configuration calls it."""

    @property
    @abstractmethod
    def expected(self) -> str:
        """What messages call it, with its bounds."""

    @property
    @abstractmethod
    def stand_in(self) -> T:
        """Any value of the kind, to go on with after a mistake was found."""

    @abstractmethod
    def read(self, node: Node) -> T:
        """Return the value; raises Unfit."""

    def show(self, value: T) -> str:
        """Return a value as it is written in a file."""
        return str(value)


@dataclass(frozen=True)
class ListOf(SettingKind[tuple[T, ...]], Generic[T]):
    """A list of values of one kind."""

    kind: SettingKind[T]
    what: str
    """What is expected, as "a list of names"."""
    fewest: int = 0

    @property
    def word(self) -> str:
        """Of what it is a list."""
        return f"list of {self.kind.word}s"

    @property
    def expected(self) -> str:
        """What was asked for."""
        return self.what

    @property
    def stand_in(self) -> tuple[T, ...]:
        """The empty list."""
        return ()

    def read(self, node: Node) -> tuple[T, ...]:
        """Return the values."""
        if not isinstance(node, Items):
            raise unfit(node, self.what)
        if len(node.nodes) < self.fewest:
            raise Unfit(Fault(self.what, "an empty one", node.line))
        values, faults = list[T](), list[Fault]()
        for place, item in enumerate(node.nodes):
            try:
                values.append(self.kind.read(item))
            except Unfit as error:
                faults.extend(fault.under(f"[{place}]") for fault in error.faults)
        if faults:
            raise Unfit(*faults)
        return tuple(values)

    def show(self, value: tuple[T, ...]) -> str:
        """Return the values in brackets."""
        return f"[{', '.join(self.kind.show(one) for one in value)}]"


@dataclass(frozen=True)
class ByName(SettingKind[dict[str, T]], Generic[T]):
    """Values of one kind under names that the operator chooses."""

    kind: SettingKind[T]
    name: SettingKind[str]
    """Of what kind the names are: only how they are written matters."""
    what: str

    @property
    def word(self) -> str:
        """What stands under the names."""
        return f"{self.kind.word}s by name"

    @property
    def expected(self) -> str:
        """What was asked for."""
        return self.what

    @property
    def stand_in(self) -> dict[str, T]:
        """No names."""
        return {}

    def read(self, node: Node) -> dict[str, T]:
        """Return the values by their names."""
        if not isinstance(node, YamlSettings):
            raise Unfit(Fault(self.what, kept_back(node), node.line))
        values, faults = dict[str, T](), list[Fault]()
        for name, entry in node.entries.items():
            try:
                values[name] = self.kind.read(entry.node)
            except Unfit as error:
                faults.extend(fault.under(f".{name}") for fault in error.faults)
        if faults:
            raise Unfit(*faults)
        return values

    def show(self, value: dict[str, T]) -> str:
        """Return the values in braces."""
        return "{" + ", ".join(f"{self.name.show(name)}: {self.kind.show(one)}" for name, one in value.items()) + "}"


E = TypeVar("E", bound=StrEnum)

# What some reader of YAML or other takes for a number, a truth value or nothing, and so for no text.
_NO_TEXT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|[-+]?0[xob][0-9a-fA-F_]+|[-+]?\.(inf|nan)"
    r"|true|false|null|~|",
    re.IGNORECASE,
)
_MOST_CHARACTERS = 4096


@dataclass(frozen=True)
class Flag(SettingKind[bool]):
    """True or false."""

    word = "`true` or `false`"
    expected = "true or false"
    stand_in = False

    def read(self, node: Node) -> bool:
        """Return the truth value; `yes`, `no`, `on` and `off` are none."""
        if isinstance(node, Scalar) and node.plain and node.text in {"true", "false"}:
            return node.text == "true"
        advice = ""
        if isinstance(node, Scalar) and node.text.lower() in {"yes", "on", "true", "no", "off", "false"}:
            advice = f"write {'true' if node.text.lower() in {'yes', 'on', 'true'} else 'false'}"
        raise unfit(node, self.expected, advice)

    def show(self, value: bool) -> str:  # noqa: FBT001  the kind's own value
        """Return the truth value as YAML writes it."""
        return "true" if value else "false"


@dataclass(frozen=True)
class Text(SettingKind[str]):
    """A text of one line, of a certain form."""

    what: str = "a text"
    form: re.Pattern[str] | None = None
    word = "text"
    stand_in = "?"

    @property
    def expected(self) -> str:
        """What was asked for."""
        return self.what

    def read(self, node: Node) -> str:
        """Return the text; what looks like a number must stand in quotes, since 2.10 would else become 2.1."""
        if not isinstance(node, Scalar) or is_nothing(node):
            raise unfit(node, self.what)
        if node.plain and _NO_TEXT.fullmatch(node.text):
            raise unfit(node, self.what, f'write it in quotes, "{node.text}"')
        if not node.text or not node.text.isprintable() or len(node.text) > _MOST_CHARACTERS:
            raise unfit(node, f"{self.what} in one line of 1 to {_MOST_CHARACTERS:,} characters")
        if self.form is not None and not self.form.fullmatch(node.text):
            raise unfit(node, self.what)
        return node.text

    def show(self, value: str) -> str:
        """Return the text, in quotes where YAML might take it for something else."""
        if re.fullmatch(r"[A-Za-z_][\w./-]*", value) and not _NO_TEXT.fullmatch(value):
            return value
        # A backslash means something in double quotes, and nothing in single ones.
        return f'"{value}"' if '"' not in value and "\\" not in value else "'" + value.replace("'", "''") + "'"


@dataclass(frozen=True)
class Secret(SettingKind[str]):
    """A text that no message, page or list of settings shows."""

    what: str
    word: str = "text (secret)"
    stand_in = ""

    @property
    def expected(self) -> str:
        """What was asked for."""
        return self.what

    def read(self, node: Node) -> str:
        """Return the text."""
        try:
            return Text(self.what).read(node)
        except Unfit as error:
            found = "nothing" if is_nothing(node) else "something else, which is not shown"
            raise Unfit(Fault(self.what, found, node.line)) from error

    def show(self, value: str) -> str:  # noqa: ARG002  whatever it is
        """Return what stands in its place, wherever values are listed."""
        return HIDDEN


@dataclass(frozen=True)
class FilePath(SettingKind[Path]):
    """A path, relative to the folder of the configuration; `~` and environment variables are filled in."""

    folder: Path
    what: str = "a path"
    word = "path"

    @property
    def expected(self) -> str:
        """What was asked for."""
        return self.what

    @property
    def stand_in(self) -> Path:
        """The folder itself."""
        return self.folder

    def read(self, node: Node) -> Path:
        """Return the path."""
        try:
            return self.folder / expanded(Text(self.what).read(node))
        except ValueError as error:
            raise unfit(node, self.what, str(error)) from error

    def show(self, value: Path) -> str:
        """Return the path as it is written: relative, unless it leads elsewhere."""
        return Text().show(str(value.relative_to(self.folder) if value.is_relative_to(self.folder) else value))


@dataclass(frozen=True)
class SecretPath(FilePath):
    """The path of a file that holds a secret. The secret is easily pasted in its place, so the path is not shown either."""

    def read(self, node: Node) -> Path:
        """Return the path."""
        try:
            return self.folder / expanded(Secret(self.what).read(node))
        except ValueError:
            # Not chained: the error would quote the setting.
            found = "a home folder or an environment variable that is not known"
            raise Unfit(Fault(self.what, found, node.line)) from None

    def show(self, value: Path) -> str:  # noqa: ARG002  whatever it is
        """Return what stands in its place, wherever values are listed."""
        return HIDDEN


@dataclass(frozen=True)
class OneOf(SettingKind[str]):
    """One of a few words."""

    names: tuple[str, ...]
    advice: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What to say to those who write certain others."""

    @property
    def word(self) -> str:
        """All the words."""
        return ", ".join(f"`{name}`" for name in self.names)

    @property
    def expected(self) -> str:
        """All the words."""
        return f"one of {', '.join(self.names)}" if len(self.names) > 1 else self.names[0]

    @property
    def stand_in(self) -> str:
        """The first."""
        return self.names[0]

    def read(self, node: Node) -> str:
        """Return the word."""
        if isinstance(node, Scalar) and node.text in self.names:
            return node.text
        text = node.text if isinstance(node, Scalar) else ""
        near = difflib.get_close_matches(text, self.names, 1)
        raise unfit(node, self.expected, self.advice.get(text, f"did you mean {near[0]}?" if near else ""))


@dataclass(frozen=True)
class Choice(SettingKind[E], Generic[E]):
    """A member of a closed list."""

    members: type[E]

    @property
    def word(self) -> str:
        """All the members."""
        return self._names.word

    @property
    def expected(self) -> str:
        """All the members."""
        return self._names.expected

    @property
    def stand_in(self) -> E:
        """The first."""
        return next(iter(self.members))

    @property
    def _names(self) -> OneOf:
        return OneOf(tuple(str(member) for member in self.members))

    def read(self, node: Node) -> E:
        """Return the member."""
        return self.members(self._names.read(node))
