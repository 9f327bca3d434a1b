"""The argument parser of all commands: help that keeps examples intact and shows defaults, and one-line errors."""

import argparse
import difflib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

from monitor.settings import expanded

_EXAMPLE = re.compile(r"^\s*(?:example:\s*)?cpcmon\s", re.MULTILINE)


class Help(argparse.HelpFormatter):
    """Wraps prose, keeps indented lines, and appends the default to an option's help."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Wrap prose; keep indented lines, which are examples and tables."""
        filled = []
        for kept, lines in _runs(text.splitlines()):
            filled += lines if kept else [super()._fill_text(" ".join(lines), width, indent)]
        return "\n".join(filled)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        """Return the help of an argument with its default."""
        return described(action)


def described(action: argparse.Action) -> str:
    """Return the help of an argument, with its default unless the text has it; `%` signs are still doubled."""
    text = action.help or ""
    silent = action.default is None or action.default is argparse.SUPPRESS or action.default in (False, [], "")
    if silent or "default:" in text or not action.option_strings or action.nargs == 0:
        return text
    return f"{text} (default: %(default)s)"


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that prints a one-line error instead of the usage."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:  # noqa: ANN401  argparse's own
        super().__init__(*arguments, **{"formatter_class": Help, "exit_on_error": False, **settings})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:  # noqa: ANN401
        """Parse the arguments; exit with 2 on an error."""
        try:
            return super().parse_known_args(args, namespace)
        except argparse.ArgumentError as error:
            # Without a name since Python 3.12: missing arguments, ambiguous options.
            named = error.argument_name is not None
            self.error(f"{error.argument_name}: {_reworded(error.message)}" if named else error.message)

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with 2."""
        if missing := re.fullmatch(r"the following arguments are required: (.+)", message):
            message = f"expected {missing[1]}, found none"
        print(f"{self.prog}: {message}\nSee `{self.prog} --help`.", file=sys.stderr)
        raise SystemExit(2)

    def reject_unknown(self, words: list[str]) -> NoReturn:
        """Report an unknown option or argument, with the closest match."""
        word = words[0].partition("=")[0]
        if not word.startswith("-"):
            self.error(f"expected no more arguments, found {' '.join(words)!r}")
        known = [flag for action in self._actions for flag in action.option_strings]
        self.error(f"expected an option of this command, found {word!r}{_meant(word, known)}")


def as_path(text: str) -> Path:
    """Return a path with `~` and variables expanded, as in `--state=~/state`."""
    written = Path(text)
    try:
        # A file whose name contains a dollar sign is taken literally.
        return written if os.path.lexists(written) else Path(expanded(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected a path, found {text!r}: {error}") from error


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands by name, in the order of the help."""
    for action in parser._actions:  # noqa: SLF001 - argparse has no public access
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            return dict(action.choices)
    return {}


def actions_of(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """Return the arguments of a command, in the order of the help."""
    hidden = (argparse._SubParsersAction, argparse._HelpAction)  # noqa: SLF001
    return [one for one in parser._actions if not isinstance(one, hidden) and one.help is not argparse.SUPPRESS]  # noqa: SLF001


def examples_of(parser: argparse.ArgumentParser) -> list[str]:
    """Return the example commands in a command's help."""
    lines = (parser.epilog or "").splitlines()
    return [line.strip().removeprefix("example:").strip() for line in lines if _EXAMPLE.match(line)]


def _runs(lines: list[str]) -> Iterator[tuple[bool, list[str]]]:
    """Yield runs of lines: (True, a line to keep) or (False, lines to wrap together)."""
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
    """Return argparse's message about an argument in our form: expected, found."""
    if wrong := re.fullmatch(r"invalid choice: '(.*)' \(choose from (.+)\)", message):
        known = [name.strip("' ") for name in wrong[2].split(",")]
        return f"expected one of {', '.join(known)}, found {wrong[1]!r}{_meant(wrong[1], known)}"
    if wrong := re.fullmatch(r"invalid (\w+) value: '(.*)'", message):
        kind = {"int": "a whole number", "float": "a number"}.get(wrong[1], f"a {wrong[1]}")
        return f"expected {kind}, found {wrong[2]!r}"
    if short := re.fullmatch(r"expected (one|at least one) argument", message):
        return f"expected {short[1]} value after it, found none"
    return message


def _meant(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""
