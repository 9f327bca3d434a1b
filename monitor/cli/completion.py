"""`cpcmon completion`: a script with which a shell completes commands, options, choices and file names.

It is made from the parsers themselves, so it knows exactly what this cpcmon takes, and needs no library.
"""

import argparse

from monitor.cli import make_parser
from monitor.cli.completion_bash import bash_script
from monitor.cli.completion_fish import fish_script
from monitor.cli.completion_words import Command, Word
from monitor.cli.completion_zsh import zsh_script
from monitor.cli.parser import actions_of, as_path, commands_of

_SHELLS = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}


def register(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.description = (
        "Print a script with which a shell completes commands, options, choices and file names of cpcmon."
        " Load it at the start of every shell; after an update nothing is to be done where it is made anew each time."
    )
    parser.epilog = """\
to load it in this shell, and in every new one if it stands in ~/.bashrc, ~/.zshrc or ~/.config/fish/config.fish:
  bash  source <(cpcmon completion bash)
  zsh   autoload -U compinit && compinit && source <(cpcmon completion zsh)
  fish  cpcmon completion fish | source

examples:
  cpcmon completion bash
  cpcmon completion zsh
  cpcmon completion fish
"""
    parser.add_argument("shell", choices=list(_SHELLS), help="the shell that is to read it")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    print(_SHELLS[options.shell](describe(make_parser())), end="")
    return 0


def describe(parser: argparse.ArgumentParser) -> list[Command]:
    """Return every command, as completion sees it."""
    known = commands_of(parser)
    shown = {one.dest: one.help or "" for action in parser._actions for one in _choices(action)}  # noqa: SLF001
    found = []
    for name, command in known.items():
        words = [_word(action, tuple(known)) for action in actions_of(command)]
        found.append(Command(name, shown.get(name, ""), tuple(words)))
    return found


def _choices(action: argparse.Action) -> list[argparse.Action]:
    """Return what the help lists for sub-commands."""
    return action._choices_actions if isinstance(action, argparse._SubParsersAction) else []  # noqa: SLF001


def _word(action: argparse.Action, commands: tuple[str, ...]) -> Word:
    choices = tuple(str(one) for one in action.choices or ())
    if action.metavar == "COMMAND" and not action.option_strings:
        choices = commands
    return Word(
        flags=tuple(action.option_strings),
        help=(action.help or "").replace("%%", "%"),
        value="" if action.nargs == 0 else str(action.metavar or action.dest.upper()),
        choices=choices,
        is_path=action.type is as_path,
        many=action.nargs in ("+", "*"),
        again=isinstance(action, argparse._AppendAction),  # noqa: SLF001
    )
