"""Mistakes in a file of settings: where each stands, what was expected, what was found, all told at once."""

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import NoReturn

from monitor.errors import ConfigError

_MOST_TOLD = 100
"""A file that is something else altogether would otherwise fill the terminal."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake."""

    line: int
    path: str
    """Which setting, as `models[0].window.records`; empty for the file as a whole."""
    expected: str
    found: str

    def told(self, file: Path) -> str:
        """Return the sentence for the operator."""
        where = f"{file}:{self.line}: {self.path}" if self.path else f"{file}:{self.line}"
        return f"{where}: expected {self.expected}, found {self.found}"


def raise_problems(file: Path, problems: Iterable[Problem]) -> NoReturn:
    """Raise one error that tells all mistakes, in the order of the file."""
    ranked = sorted(set(problems), key=attrgetter("line", "path", "expected", "found"))
    sentences = [problem.told(file) for problem in ranked[:_MOST_TOLD]]
    if len(ranked) > _MOST_TOLD:
        sentences.append(f"{file}: and {len(ranked) - _MOST_TOLD:,} more")
    sentences.append(f"{file}: {len(ranked):,} {'mistake' if len(ranked) == 1 else 'mistakes'}")
    raise ConfigError("\n".join(sentences))
