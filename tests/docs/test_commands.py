"""Every command in README and docs exists as it stands there: sub-commands, flags, choices, make targets."""

import argparse
import re
import subprocess
from collections.abc import Callable

import pytest

from monitor.cli import make_parser
from monitor.cli.parser import commands_of
from tests.docs.pages import ROOT, Typed, in_block, typed
from tests.servers import real_server

SHOWN = list(dict.fromkeys(typed()))
OURS = [one for one in SHOWN if one.program == "cpcmon"]
COMMANDS = commands_of(make_parser())
TARGETS = set(re.findall(r"^([a-z.]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))


def refused(words: tuple[str, ...]) -> str | None:
    """Return why the real parser refuses a command, which is not run; None if it takes it."""
    said: list[str] = []

    class Refused(Exception):
        pass

    def error(message: str) -> None:
        said.append(message)
        raise Refused

    parser = make_parser()
    for one in (parser, *commands_of(parser).values()):
        setattr(one, "error", error)  # noqa: B010 - a parser's own way to end
    try:
        _, unknown = parser.parse_known_args(list(words))
    except Refused:
        return said[0]
    except SystemExit:  # --help, --version: done already
        return None
    return f"unknown: {' '.join(unknown)}" if unknown else None


def unknown_flags(words: tuple[str, ...]) -> list[str]:
    """Return what does not exist in a command of which words are left out, as in a sentence."""
    if words[0] not in COMMANDS:
        placeholder = words[0] == "COMMAND" or words[0] in {"--version", "--help"}
        return [] if placeholder else [words[0]]
    known = {flag for action in COMMANDS[words[0]]._actions for flag in action.option_strings}  # noqa: SLF001
    return [word for word in words[1:] if word.startswith("-") and word.partition("=")[0] not in known]


@pytest.mark.parametrize("one", [one for one in OURS if one.whole], ids=str)
def test_a_command_to_be_typed_is_taken_by_the_real_parser(one: Typed) -> None:
    """All of it: required options too. It is not run here."""
    assert refused(one.words) is None


@pytest.mark.parametrize("one", [one for one in OURS if not one.whole], ids=str)
def test_a_command_in_a_sentence_names_only_what_exists(one: Typed) -> None:
    """`cpcmon state --inbox DIR` may leave out the rest, but what it names is there."""
    assert unknown_flags(one.words) == []


@pytest.mark.parametrize("one", [one for one in SHOWN if one.program == "make"], ids=str)
def test_every_make_target_that_a_page_names_exists(one: Typed) -> None:
    """`make test`, `make torture TORTURE=…`."""
    targets = [word for word in one.words if "=" not in word and not word.startswith("-")]
    assert set(targets) <= TARGETS


@pytest.mark.parametrize("one", [one for one in SHOWN if one.program in {"promtool", "amtool"}], ids=str)
def test_every_command_of_prometheus_tools_exists(one: Typed) -> None:
    """Its sub-commands and flags are in the help of the real program."""
    plain = [word for word in one.words if re.fullmatch(r"[a-z][a-z-]*", word)][:2]
    ran = subprocess.run(
        [real_server(one.program), *plain, "--help"], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    flags = [word.partition("=")[0] for word in one.words if word.startswith("--")]
    assert [flag for flag in flags if flag not in ran.stdout + ran.stderr] == []


def test_commands_are_found_where_people_look() -> None:
    """A search that finds nothing would pass every test above."""
    pages = {one.page for one in OURS}
    assert {"README.md", "docs/commands.md", "docs/deployment.md", "docs/runbooks/down.md"} <= pages
    assert any(one.program == "make" for one in SHOWN)
    assert any(one.program == "promtool" for one in SHOWN)


@pytest.mark.parametrize(
    ("line", "check"),
    [
        ("cpcmon run --config.fiel config.yaml", refused),
        ("$ .venv/bin/cpcmon estimate --reference a \\\n  --input b --window many", refused),
        ("sudo python -m monitor stat folder", refused),
        ("true && cpcmon rules --job x", refused),
        ("cpcmon watch --rekursive", unknown_flags),
    ],
)
def test_a_mistake_on_a_page_would_be_found(line: str, check: Callable[[tuple[str, ...]], object]) -> None:
    """Each form in which pages write a command."""
    (one,) = in_block("page", line + "\n")
    assert check(one.words)


def test_the_parser_is_argparses_own() -> None:
    """`refused` replaces `error`: if parsing ever ends another way, this test says so first."""
    assert isinstance(make_parser(), argparse.ArgumentParser)
    assert refused(("estimate",)) is not None
