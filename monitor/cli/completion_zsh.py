"""The completion script for zsh: one list of `_arguments` for each command."""

from collections.abc import Sequence

from monitor.cli.completion_words import Command, Word

_SCRIPT = """\
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
        specs += [_quoted(f"*:{_plain(word.value)}:{_values(word)}") for word in command.options if word.many][:1]
        joined = " \\\n            ".join(specs)
        cases.append(f"        {command.name}) _arguments \\\n            {joined} ;;")
    return _SCRIPT.format(commands="\n".join(listed), cases="\n".join(cases))


def _option(word: Word, flag: str) -> str:
    star = "*" if word.again else ""
    if not word.value:
        return _quoted(f"{star}{flag}[{_plain(word.help)}]")
    return _quoted(f"{star}{flag}=[{_plain(word.help)}]:{_plain(word.value)}:{_values(word)}")


def _place(word: Word, at: int) -> str:
    return _quoted(f"{at}:{_plain(word.value)}:{_values(word)}")


def _values(word: Word) -> str:
    if word.choices:
        return f"({' '.join(word.choices)})"
    return "_files" if word.is_path else " "


def _plain(text: str) -> str:
    """Return text without the signs that mean something within a specification."""
    return "".join(f"\\{sign}" if sign in "[]:\\" else sign for sign in text)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
