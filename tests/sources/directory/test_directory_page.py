"""docs/directory.md matches the code."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.sources.directory.inbox import Inbox

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "directory.md").read_text(encoding="utf-8")

Watch = Callable[..., Inbox]


def test_a_file_renamed_and_touched_within_one_poll_is_read_again(inbox: Inbox) -> None:
    """A file that is only renamed is not."""
    file = inbox.write("a.jsonl", "one")
    assert inbox.poll() == ["one"]
    file = file.rename(inbox.path / "b.jsonl")
    assert inbox.poll() == []
    os.utime(file.rename(inbox.path / "c.jsonl"), (5, 5))
    assert inbox.polls(3) == ["one"]


def test_a_file_rotated_before_the_first_poll_is_not_read(inbox: Inbox) -> None:
    """A file that was polled before is."""
    inbox.write("a.jsonl", "one").rename(inbox.path / "a.jsonl.1")
    assert inbox.polls(3) == []
    assert inbox.counted["unknown_extension"] == 1
    file = inbox.write("b.jsonl", "two")
    assert inbox.poll() == ["two"]
    inbox.write("b.jsonl", "three")
    file.rename(inbox.path / "b.jsonl.1")
    assert inbox.polls(3) == ["three"]


def test_the_python_example_works(inbox: Inbox) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(code.replace("/data/inbox", str(inbox.path)), {})  # noqa: S102 - our own page
    assert [json.loads(line) for line in inbox.polls(3)] == [{"probs": [0.7, 0.2, 0.1]}]
    assert len(list(inbox.path.iterdir())) == 1


def test_the_shell_example_works(inbox: Inbox, tmp_path: Path) -> None:
    (recipe,) = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "result.jsonl").write_text("one\n")
    command = recipe.replace("/data/inbox", str(inbox.path))
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True)
    assert inbox.polls(3) == ["one"]
