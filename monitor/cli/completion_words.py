"""What the completion of every shell needs to know of a command."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """An option, or a word without a name."""

    flags: tuple[str, ...]
    """None for a word without a name."""
    help: str
    value: str
    """What its value is called; empty when it takes none."""
    choices: tuple[str, ...]
    is_path: bool
    many: bool
    """Whether several values may follow one flag."""
    again: bool
    """Whether the option may be given more than once."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command with its options and words."""

    name: str
    help: str
    words: tuple[Word, ...]

    @property
    def options(self) -> tuple[Word, ...]:
        """Return what has a name."""
        return tuple(word for word in self.words if word.flags)

    @property
    def places(self) -> tuple[Word, ...]:
        """Return what has none, in order."""
        return tuple(word for word in self.words if not word.flags)


HELP = ("-h", "--help")
"""Every command takes them."""
