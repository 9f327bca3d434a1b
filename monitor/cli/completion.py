"""`cpcmon completion`: a script that completes commands, options, choices and file names in bash, zsh and fish.

It is made from the parsers themselves, so it knows exactly what this cpcmon takes, and needs no library.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from monitor.cli import make_parser
from monitor.cli.parser import actions_of, as_path, commands_of


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


_BASH_SCRIPT = """\
# Made by `cpcmon completion bash`.
_cpcmon_kind() {{ # what is expected: COMMAND FLAG, or COMMAND and the number of a word without a name
  case "$1 $2" in
{kinds}
  esac
}}
_cpcmon() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" command="" kind="" place=0 word at
  COMPREPLY=()
  for ((at = 1; at < COMP_CWORD; at++)); do
    word="${{COMP_WORDS[at]}}"
    if [[ "$word" == "=" ]]; then # bash splits --flag=value in three
      continue
    elif [[ "$word" == -* ]]; then
      kind="$(_cpcmon_kind "$command" "$word")"
    elif [[ -z "$command" ]]; then
      command="$word" kind=""
    elif [[ "$kind" == "many "* ]]; then
      continue
    elif [[ -n "$kind" ]]; then
      kind=""
    else
      ((place++))
    fi
  done
  [[ "$current" == "=" ]] && current=""
  if [[ -z "$command" ]]; then
    COMPREPLY=($(compgen -W "{commands} --version --help -h" -- "$current"))
    return
  fi
  if [[ "$current" == -* ]]; then
    case "$command" in
{flags}
    esac
    return
  fi
  [[ -z "$kind" ]] && kind="$(_cpcmon_kind "$command" "$place")"
  kind="${{kind#many }}"
  case "$kind" in
    file)
      compopt -o filenames 2>/dev/null
      local IFS=$'\\n'
      COMPREPLY=($(compgen -f -- "$current"))
      ;;
    words\\ *) COMPREPLY=($(compgen -W "${{kind#words }}" -- "$current")) ;;
  esac
}}
complete -F _cpcmon cpcmon
"""


def bash_script(commands: Sequence[Command]) -> str:
    """Return the script."""
    kinds, flags = [], []
    for command in commands:
        for option in command.options:
            if option.value:
                names = "|".join(f'"{command.name} {flag}"' for flag in option.flags)
                kinds.append(f'    {names}) echo "{_kind(option)}" ;;')
        kinds += [f'    "{command.name} {at}") echo "{_kind(word)}" ;;' for at, word in enumerate(command.places)]
        names = " ".join([flag for option in command.options for flag in option.flags] + list(HELP))
        flags.append(f'      {command.name}) COMPREPLY=($(compgen -W "{names}" -- "$current")) ;;')
    return _BASH_SCRIPT.format(
        kinds="\n".join(kinds), flags="\n".join(flags), commands=" ".join(command.name for command in commands)
    )


def _kind(word: Word) -> str:
    many = "many " if word.many else ""
    if word.choices:
        return f"{many}words {' '.join(word.choices)}"
    return f"{many}{'file' if word.is_path else 'text'}"


_START = """\
# Made by `cpcmon completion fish`.
function __cpcmon_runs --description 'whether the command line runs one of these commands'
    set -l words (commandline -opc)
    test (count $words) -ge 2; and contains -- $words[2] $argv
end
function __cpcmon_starts --description 'whether no command was typed yet'
    test (count (commandline -opc)) -eq 1
end
complete -c cpcmon -f
complete -c cpcmon -s h -l help -d 'show the help'
complete -c cpcmon -n __cpcmon_starts -l version -d 'say which one it is'
"""


def fish_script(commands: Sequence[Command]) -> str:
    """Return the script."""
    lines = []
    for command in commands:
        lines.append(f"complete -c cpcmon -n __cpcmon_starts -a {command.name} -d {_quoted(command.help)}")
        when = f"complete -c cpcmon -n '__cpcmon_runs {command.name}'"
        for option in command.options:
            names = " ".join(_flag(flag) for flag in option.flags)
            lines.append(f"{when} {names}{_values(option)} -d {_quoted(option.help)}")
        # fish has no number of a word: whatever may stand without a flag is offered. So are more values of a flag that
        # takes several.
        places = [*command.places, *(option for option in command.options if option.many)]
        if any(word.is_path for word in places):
            lines.append(f"{when} -F")
        lines += [f"{when} -a {_quoted(' '.join(word.choices))}" for word in command.places if word.choices]
    return _START + "\n".join(lines) + "\n"


def _flag(flag: str) -> str:
    return f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"


def _values(word: Word) -> str:
    if not word.value:
        return ""
    if word.choices:
        return f" -x -a {_quoted(' '.join(word.choices))}"
    return " -r -F" if word.is_path else " -x"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


_ZSH_SCRIPT = """\
#compdef cpcmon
# Made by `cpcmon completion zsh`.
_cpcmon() {{
  local context state line
  local -a commands
  commands=(
{commands}
  )
  _arguments -C \\
    '(-h --help)'{{-h,--help}}'[show the help]' \\
    '--version[say which one it is]' \\
    '1:command:->command' \\
    '*::argument:->argument'
  case "$state" in
    command) _describe command commands ;;
    argument)
      case "$words[1]" in
{cases}
      esac
      ;;
  esac
}}
if [[ "$funcstack[1]" == "_cpcmon" ]]; then
  _cpcmon "$@" # loaded by compinit from a folder of $fpath
else
  compdef _cpcmon cpcmon
fi
"""


def zsh_script(commands: Sequence[Command]) -> str:
    """Return the script."""
    listed = [f"    {_quoted(f'{command.name}:{command.help}')}" for command in commands]
    cases = []
    for command in commands:
        specs = ["'(-h --help)'{-h,--help}'[show the help]'"]
        specs += [_option(option, flag) for option in command.options for flag in option.flags]
        specs += [_place(word, at) for at, word in enumerate(command.places, start=1)]
        # A second value of a flag that takes several is to zsh a word without a name.
        specs += [_zsh_quoted(f"*:{_plain(word.value)}:{_zsh_values(word)}") for word in command.options if word.many][
            :1
        ]
        joined = " \\\n            ".join(specs)
        cases.append(f"        {command.name}) _arguments \\\n            {joined} ;;")
    return _ZSH_SCRIPT.format(commands="\n".join(listed), cases="\n".join(cases))


def _option(word: Word, flag: str) -> str:
    star = "*" if word.again else ""
    if not word.value:
        return _zsh_quoted(f"{star}{flag}[{_plain(word.help)}]")
    return _zsh_quoted(f"{star}{flag}=[{_plain(word.help)}]:{_plain(word.value)}:{_zsh_values(word)}")


def _place(word: Word, at: int) -> str:
    return _zsh_quoted(f"{at}:{_plain(word.value)}:{_zsh_values(word)}")


def _zsh_values(word: Word) -> str:
    if word.choices:
        return f"({' '.join(word.choices)})"
    return "_files" if word.is_path else " "


def _plain(text: str) -> str:
    """Return text without the signs that mean something within a specification."""
    return "".join(f"\\{sign}" if sign in "[]:\\" else sign for sign in text)


def _zsh_quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


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
