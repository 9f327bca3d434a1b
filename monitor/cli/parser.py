"""The parser that the commands share: help that keeps examples as they are typed, and mistakes in one sentence.

argparse fills an epilog like prose and shows a default only where the text says so; both are put right here once, so
that a command says only what it does. Exit code 2 for bad usage is argparse's own and public.
"""

import argparse
import difflib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from monitor.settings.kinds import expanded

_EXAMPLE = re.compile(r"^\s*(?:example:\s*)?cpcmon\s", re.MULTILINE)


class Help(argparse.HelpFormatter):
    """Fills prose, keeps indented lines, and ends the help of an option with its default."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Keep lines that start with spaces: they are examples and tables."""
        filled = []
        for kept, lines in _runs(text.splitlines()):
            filled += lines if kept else [super()._fill_text(" ".join(lines), width, indent)]
        return "\n".join(filled)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        """Return the help of an option with its default, unless it says it or has none worth saying."""
        return described(action)


def described(action: argparse.Action) -> str:
    """Return what the help says of an option or a word, with `%` signs still doubled."""
    text = action.help or ""
    silent = action.default is None or action.default is argparse.SUPPRESS or action.default in (False, [], "")
    if silent or "default:" in text or not action.option_strings or action.nargs == 0:
        return text
    return f"{text} (default: %(default)s)"


class Parser(argparse.ArgumentParser):
    """argparse's own, which says a mistake in one sentence and where to read on, instead of a screen of usage."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:  # noqa: ANN401  argparse's own
        settings.setdefault("formatter_class", Help)
        super().__init__(*arguments, **settings)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end with 2."""
        print(f"{self.prog}: {_reworded(message)}\n`{self.prog} --help` shows how it is typed.", file=sys.stderr)
        raise SystemExit(2)

    def refuse_unknown(self, words: list[str]) -> NoReturn:
        """Say that there is no such option or word, and which one was probably meant."""
        word = words[0].partition("=")[0]
        if not word.startswith("-"):
            self.error(f"expected no more words, found {' '.join(words)!r}")
        known = [flag for action in self._actions for flag in action.option_strings]
        self.error(f"expected an option of this command, found {word!r}{_meant(word, known)}")


def as_path(text: str) -> Path:
    """Return a path of the command line, with what the shell left to fill in, as in `--state=~/state`."""
    written = Path(text)
    try:
        # The shell has had its say: a dollar in the name of a file that is there is a dollar.
        return written if os.path.lexists(written) else Path(expanded(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected a path, found {text!r}: {error}") from error


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands by their names, in the order of the help."""
    for action in parser._actions:  # noqa: SLF001  argparse has no other door to what it was told
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}


def actions_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the options and words of one command, in the order of the help."""
    hidden = (argparse._SubParsersAction, argparse._HelpAction)  # noqa: SLF001
    return [one for one in parser._actions if not isinstance(one, hidden) and one.help is not argparse.SUPPRESS]  # noqa: SLF001


def examples_of(parser: argparse.ArgumentParser) -> list[str]:
    """Return the examples in the help of one command, as they are typed."""
    lines = (parser.epilog or "").splitlines()
    return [line.strip().removeprefix("example:").strip() for line in lines if _EXAMPLE.match(line)]


def _runs(lines: list[str]) -> Iterator[tuple[bool, list[str]]]:
    """Yield lines that are kept as they are, and others together."""
    prose: list[str] = []
    for line in lines:
        if line.strip() and not line.startswith(" "):
            prose.append(line)
            continue
        if prose:
            yield False, prose
            prose = []
        yield True, [line]
    if prose:
        yield False, prose


def _reworded(message: str) -> str:
    """Return argparse's message in the form of all others: where, what was expected, what was found."""
    if missing := re.fullmatch(r"the following arguments are required: (.+)", message):
        return f"expected {missing[1]}, found none"
    if wrong := re.fullmatch(r"argument (.+?): invalid choice: '(.*)' \(choose from (.+)\)", message):
        known = [name.strip("' ") for name in wrong[3].split(",")]
        return f"{wrong[1]}: expected one of {', '.join(known)}, found {wrong[2]!r}{_meant(wrong[2], known)}"
    if wrong := re.fullmatch(r"argument (.+?): invalid (\w+) value: '(.*)'", message):
        kind = {"int": "a whole number", "float": "a number"}.get(wrong[2], f"a {wrong[2]}")
        return f"{wrong[1]}: expected {kind}, found {wrong[3]!r}"
    if short := re.fullmatch(r"argument (.+?): expected (one|at least one) argument", message):
        return f"{short[1]}: expected {short[2]} value after it, found none"
    return message.removeprefix("argument ")


def _meant(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
