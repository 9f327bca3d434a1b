"""The commands on pages exist: sub-commands, flags, choices, make targets."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from monitor.cli import make_parser
from monitor.cli.parser import commands_of
from tests.conftest import ROOT
from tests.docs.markdown import PAGES
from tests.servers import real_server

_PROGRAMS = ("cpcmon", "make", "promtool", "amtool")
_SEPARATORS = frozenset({"|", "||", "&&", ";", "&"})
_REDIRECTION = re.compile(r"\s[0-9]?(?:>>?|<)\s*[^\s(]+")


@dataclass(frozen=True, slots=True)
class Command:
    """A command on a page."""

    page: str
    program: str
    words: tuple[str, ...]
    in_block: bool
    """Whether it is in a code block and complete. Inline code may omit words."""

    def __str__(self) -> str:
        """Return the test id."""
        return f"{self.page}: {self.program} {' '.join(self.words)}"


def _shown() -> Iterator[Command]:
    """Yield the commands of README, CONTRIBUTING and docs."""
    for name, page in PAGES.items():
        if name not in {"README.md", "CONTRIBUTING.md"} and not name.startswith("docs/"):
            continue
        for block in page.blocks("sh", "bash", "console"):
            for line in block.replace("\\\n", " ").splitlines():
                yield from _in_line(name, line.strip().removeprefix("$ ").removeprefix("# "), in_block=True)
        for span in page.spans:
            if span.split() and span.split()[0] in _PROGRAMS and len(span.split()) > 1:
                yield from _in_line(name, span, in_block=False)


def _in_line(page: str, line: str, *, in_block: bool) -> Iterator[Command]:
    try:
        words = shlex.split(_REDIRECTION.sub("", line), comments=True)
    except ValueError:  # a quotation that spans lines
        words = line.split()
    words = [part for word in words for part in ([word[:-1], ";"] if word.endswith(";") and word != ";" else [word])]
    while words:
        end = next((at for at, word in enumerate(words) if word in _SEPARATORS), len(words))
        yield from _one(page, words[:end], in_block=in_block)
        words = words[end + 1 :]


def _one(page: str, words: list[str], *, in_block: bool) -> Iterator[Command]:
    while words and (words[0] in {"sudo", "exec"} or re.match(r"[A-Z_]+=", words[0])):
        words = words[1:]
    if words[1:3] == ["-m", "monitor"]:
        words = ["cpcmon", *words[3:]]
    if words and words[0].rsplit("/", 1)[-1] in _PROGRAMS:
        yield Command(page, words[0].rsplit("/", 1)[-1], tuple(words[1:]), in_block)


SHOWN = list(dict.fromkeys(_shown()))
OURS = [one for one in SHOWN if one.program == "cpcmon"]
COMMANDS = commands_of(make_parser())
TARGETS = set(re.findall(r"^([a-z.]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))


def _usage_error(words: tuple[str, ...]) -> str | None:
    """Return why the parser rejects a command; None if it accepts it."""
    errors: list[str] = []

    class Rejected(Exception):
        pass

    def error(message: str) -> None:
        errors.append(message)
        raise Rejected

    parser = make_parser()
    for one in (parser, *commands_of(parser).values()):
        setattr(one, "error", error)  # noqa: B010 - replaces a method
    try:
        _, unknown = parser.parse_known_args(list(words))
    except Rejected:
        return errors[0]
    except SystemExit:  # --help, --version
        return None
    return f"unknown: {' '.join(unknown)}" if unknown else None


def _unknown_words(words: tuple[str, ...]) -> list[str]:
    """Return the sub-command or flags that do not exist."""
    if words[0] not in COMMANDS:
        placeholder = words[0] == "COMMAND" or words[0] in {"--version", "--help"}
        return [] if placeholder else [words[0]]
    known = {flag for action in COMMANDS[words[0]]._actions for flag in action.option_strings}  # noqa: SLF001
    return [word for word in words[1:] if word.startswith("-") and word.partition("=")[0] not in known]


@pytest.mark.parametrize("one", [one for one in OURS if one.in_block], ids=str)
def test_the_parser_accepts_a_command_in_a_block(one: Command) -> None:
    assert _usage_error(one.words) is None


@pytest.mark.parametrize("one", [one for one in OURS if not one.in_block], ids=str)
def test_flags_of_an_inline_command_exist(one: Command) -> None:
    assert _unknown_words(one.words) == []


@pytest.mark.parametrize("one", [one for one in SHOWN if one.program == "make"], ids=str)
def test_make_targets_exist(one: Command) -> None:
    targets = [word for word in one.words if "=" not in word and not word.startswith("-")]
    assert set(targets) <= TARGETS


@pytest.mark.parametrize("one", [one for one in SHOWN if one.program in {"promtool", "amtool"}], ids=str)
def test_commands_of_prometheus_tools_exist(one: Command) -> None:
    """Their sub-commands and flags are in the help of the program."""
    plain = [word for word in one.words if re.fullmatch(r"[a-z][a-z-]*", word)][:2]
    ran = subprocess.run(
        [real_server(one.program), *plain, "--help"], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    flags = [word.partition("=")[0] for word in one.words if word.startswith("--")]
    assert [flag for flag in flags if flag not in ran.stdout + ran.stderr] == []


def test_commands_are_found() -> None:
    """An empty search would pass all tests above."""
    assert {"README.md", "docs/commands.md", "docs/deployment.md"} <= {one.page for one in OURS if one.in_block}
    assert {one.program for one in SHOWN} >= {"cpcmon", "make", "promtool"}
    assert _usage_error(("run", "--config.fiel", "config.yaml"))
    assert _unknown_words(("watch", "--rekursive"))
