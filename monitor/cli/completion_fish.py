"""The completion script for fish: one line for each command, option and word."""

from collections.abc import Sequence

from monitor.cli.completion_words import Command, Word

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
