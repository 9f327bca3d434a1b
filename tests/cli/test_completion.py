"""Completion in the real shells, with the tab key."""

import os
import pty
import select
import shlex
import time
from pathlib import Path

import pytest

from monitor.cli import main
from tests.servers import real_server

# A fake cpcmon prints its arguments.
STARTS = {
    "bash": (
        ["--norc", "--noprofile", "-i"],
        "PS1='ready> '; cpcmon() {{ printf '<%s>' \"$@\" END; }}; source {script}\n",
    ),
    "zsh": (
        ["-f", "-i"],
        "PS1='ready> '; autoload -U compinit; compinit -u -D; cpcmon() {{ printf '<%s>' \"$@\" END }}; source {script}\n",
    ),
    "fish": (
        ["--no-config", "-i"],
        "function fish_prompt; echo 'ready> '; end; function cpcmon; printf '<%s>' $argv END; end; source {script}\n",
    ),
}
TYPED = [
    ("cali\t", ["calibrate"]),
    ("run --config.f\tconf\t", ["run", "--config.file", "config.yaml"]),
    ("run --web.l\t", ["run", "--web.listen-address"]),
    ("estimate --output js\t", ["estimate", "--output", "json"]),
    (
        "evaluate --source vali\t --target si\t",
        ["evaluate", "--source", "validation.jsonl", "--target", "site b.jsonl"],
    ),
    ("check-config conf\t", ["check-config", "config.yaml"]),
    ("watch inb\t --on-finish del\t", ["watch", "inbox", "--on-finish", "delete"]),
    ("completion fi\t", ["completion", "fish"]),
    ("help eval\t", ["help", "evaluate"]),
]


class Terminal:
    """A shell on a pseudo-terminal."""

    def __init__(self, program: str, words: list[str], folder: Path) -> None:
        self.shown = ""
        self._pid, self._end = pty.fork()
        if self._pid == 0:
            os.chdir(folder)
            clean = {"PATH": os.environ["PATH"], "HOME": str(folder), "TERM": "dumb", "LC_ALL": "C.UTF-8"}
            os.execve(program, [program, *words], clean)  # noqa: S606

    def type(self, keys: str, until: str, seconds: float = 60.0) -> str:
        """Type keys and return the output up to and including `until`."""
        os.write(self._end, keys.encode())
        shown, deadline = "", time.monotonic() + seconds
        while until not in shown:
            assert time.monotonic() < deadline, f"{until!r} did not come: {shown!r}"
            if select.select([self._end], [], [], 1.0)[0]:
                shown += os.read(self._end, 65536).decode(errors="replace")
        return shown

    def close(self) -> None:
        """End the shell."""
        os.kill(self._pid, 9)
        os.waitpid(self._pid, 0)
        os.close(self._end)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with files to complete."""
    for name in ("config.yaml", "validation.jsonl", "site b.jsonl"):
        (tmp_path / name).touch()
    (tmp_path / "inbox").mkdir()
    return tmp_path


@pytest.mark.parametrize("shell", STARTS)
def test_the_tab_key_completes_commands_options_choices_and_files(
    shell: str, folder: Path, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """The shell completes each typed line, then runs it."""
    program = real_server(shell)
    assert main(["completion", shell]) == 0
    script = tmp_path_factory.mktemp("script") / f"cpcmon.{shell}"
    script.write_text(capsys.readouterr().out, encoding="utf-8")
    words, start = STARTS[shell]
    terminal = Terminal(program, words, folder)
    try:
        terminal.type(start.format(script=shlex.quote(str(script))), "ready> ")
        for keys, expected in TYPED:
            # zsh completes to --flag=value and may keep the slash of a directory.
            shown = terminal.type(f"cpcmon {keys}\r", "<END>").replace("=", "><").replace("/>", ">")
            made = shown[shown.rindex("<" + expected[0] + ">") if f"<{expected[0]}>" in shown else 0 :]
            assert made.startswith("".join(f"<{word}>" for word in [*expected, "END"])), (keys, shown)
    finally:
        terminal.close()
