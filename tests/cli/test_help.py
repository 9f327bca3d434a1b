"""The help is complete, and its examples run."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.cli import make_parser
from monitor.cli.parser import actions_of, commands_of, examples_of
from tests.cli.examples import ended
from tests.conftest import Ran

PARSER = make_parser()
COMMANDS = commands_of(PARSER)
EXAMPLES = [example for one in (PARSER, *COMMANDS.values()) for example in examples_of(one)]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_description_and_an_example(name: str, cpcmon: Callable[..., Ran]) -> None:
    """And `cpcmon help NAME` prints the same as `cpcmon NAME --help`."""
    command = COMMANDS[name]
    assert (command.description or "").endswith(".")
    assert examples_of(command)
    assert {example.split()[1] for example in examples_of(command)} == {name}
    shown = cpcmon(name, "--help")
    assert shown.code == 0
    assert cpcmon("help", name) == shown
    for example in examples_of(command):
        assert example in " ".join(shown.out.split()), "an example must not be wrapped"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_has_a_help_with_its_default(name: str) -> None:
    printed = " ".join(COMMANDS[name].format_help().split())
    for action in actions_of(COMMANDS[name]):
        assert action.help, f"{action.dest}: no help"
        if action.option_strings and action.nargs != 0 and action.default not in (None, [], ""):
            start = printed.index((action.help % {"default": action.default}).split(" (")[0])
            assert "(default: " in printed[start : start + len(action.help) + 200], action.dest


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_of_the_help_runs(
    example: str, example_folder: Path, cpcmon: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`run` only checks its configuration; the demo is only parsed."""
    monkeypatch.chdir(example_folder)
    program, *words = shlex.split(example)
    assert program == "cpcmon"
    _, unknown = make_parser().parse_known_args(words)
    assert unknown == []
    if (ending := ended(words)) is not None:
        ran = cpcmon(*ending)
        assert ran.code == 0, ran.err
        assert ran.out or (example_folder / words[-1]).stat().st_size


def test_without_a_command_the_help_is_printed(cpcmon: Callable[..., Ran]) -> None:
    """On standard error, with every command and the exit codes."""
    ran = cpcmon()
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.endswith("cpcmon: expected a command, found none; try cpcmon demo\n")
    assert all(re.search(rf"^    {name}\b", ran.err, re.MULTILINE) for name in COMMANDS)
    assert re.findall(r"^  (\d+)  ", ran.err, re.MULTILINE) == ["0", "1", "2", "3", "130"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["estimat"], "found 'estimat'; did you mean estimate?"),
        (["help", "estimat"], "found 'estimat'"),
        (["estimate"], "cpcmon estimate: expected --reference, --input, found none"),
        (
            ["estimate", "--reference", "a", "--input", "b", "--widnow=5"],
            "expected an option of this command, found '--widnow'; did you mean --window?",
        ),
        (["state", "a", "b"], "cpcmon state: expected no more arguments, found 'b'"),
        (["state", "a", "--rejected", "few"], "--rejected: expected a whole number, found 'few'"),
        (["state", "a", "--rejected"], "--rejected: expected one value after it, found none"),
        (["completion", "csh"], "shell: expected one of bash, zsh, fish, found 'csh'"),
        (["rules", "--config.fiel", "c"], "expected --config.file, found none"),
    ],
)
def test_a_usage_error_is_one_line_with_a_hint(words: list[str], message: str, cpcmon: Callable[..., Ran]) -> None:
    """With the closest match."""
    ran = cpcmon(*words)
    assert ran.code == 2
    assert message in ran.err
    assert len(ran.err.splitlines()) <= 2
