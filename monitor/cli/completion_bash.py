"""The completion script for bash. It needs nothing beside bash itself, not even the package bash-completion."""

from collections.abc import Sequence

from monitor.cli.completion_words import HELP, Command, Word

_SCRIPT = """\
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
    return _SCRIPT.format(
        kinds="\n".join(kinds), flags="\n".join(flags), commands=" ".join(command.name for command in commands)
    )


def _kind(word: Word) -> str:
    many = "many " if word.many else ""
    if word.choices:
        return f"{many}words {' '.join(word.choices)}"
    return f"{many}{'file' if word.is_path else 'text'}"
