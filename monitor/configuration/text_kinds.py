"""Settings that are words: flags, texts, secrets, paths, and choices from a list."""

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeVar

from monitor.configuration.kinds import Fault, Kind, Unfit, is_nothing, unfit
from monitor.configuration.settings import HIDDEN
from monitor.configuration.yaml_text import Node, Scalar
from monitor.paths import expanded

E = TypeVar("E", bound=StrEnum)

# What some reader of YAML or other takes for a number, a truth value or nothing, and so for no text.
_NO_TEXT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|[-+]?0[xob][0-9a-fA-F_]+|[-+]?\.(inf|nan)"
    r"|true|false|null|~|",
    re.IGNORECASE,
)
_MOST_CHARACTERS = 4096


@dataclass(frozen=True)
class Flag(Kind[bool]):
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
class Text(Kind[str]):
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
class Secret(Kind[str]):
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
class FilePath(Kind[Path]):
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
class SecretPath(Kind[Path]):
    """The path of a file that holds a secret. The secret is easily pasted in its place, so the path is not shown either."""

    folder: Path
    what: str
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
            return self.folder / expanded(Secret(self.what).read(node))
        except ValueError:
            # Not chained: the error would quote the setting.
            found = "a home folder or an environment variable that is not known"
            raise Unfit(Fault(self.what, found, node.line)) from None

    def show(self, value: Path) -> str:  # noqa: ARG002  whatever it is
        """Return what stands in its place, wherever values are listed."""
        return HIDDEN


@dataclass(frozen=True)
class OneOf(Kind[str]):
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
class Choice(Kind[E], Generic[E]):
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
