"""Files that hold settings or secrets: opened only if they are regular files, read within limits.

Opening a pipe waits for whoever writes to it. At a reload that would be the daemon itself, which then neither stops nor
tells systemd that it lives.
"""

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from monitor.errors import ConfigError
from monitor.settings.kinds import SecretPath
from monitor.settings.section import Section, SettingsFindings
from monitor.settings.yaml_text import MOST_BYTES, InvalidYaml, Problem, YamlSettings, compose, raise_problems, shown


def open_file(path: Path) -> BinaryIO:
    """Open a file to read it; raises OSError, also for what is there and is no file."""
    # Without O_NONBLOCK the opening itself would wait. It has no effect on a file.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check(os.fstat(number))
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def problem_of(path: Path) -> str | None:
    """Say what keeps a path from being a file that can be opened; None when nothing does, or only opening it tells."""
    try:
        _check(path.stat())
    except OSError as error:
        return error.strerror or type(error).__name__
    return None


def _check(found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "a pipe or a device")


@dataclass(frozen=True, slots=True)
class SettingsDocument:
    """A file of settings. Read its root, then `finish`."""

    file: Path
    root: Section
    digest: str
    """Tells one file's content from another's."""

    @property
    def findings(self) -> SettingsFindings:
        """What has come to light so far."""
        return self.root.findings

    def finish(self) -> None:
        """Raise ConfigError with all mistakes, if there are any; unknown keys are those that nobody asked for."""
        if problems := self.findings.all_problems():
            raise_problems(self.file, problems)


def open_document(file: Path) -> SettingsDocument:
    """Open a file of settings; raises ConfigError when nothing can be made of it."""
    raw = _content(file)
    findings = SettingsFindings()
    try:
        tree = compose(raw, findings.problems)
    except InvalidYaml as error:
        raise_problems(file, [*findings.problems, error.problem])
    if not isinstance(tree, YamlSettings):
        found = "an empty file" if tree is None else shown(tree)
        line = 1 if tree is None else tree.line
        raise_problems(file, [Problem(line, "", "settings", found)])
    return SettingsDocument(file, Section(findings, "", tree, tree.line), hashlib.sha256(raw).hexdigest())


def _content(file: Path) -> bytes:
    try:
        with open_file(file) as opened:
            # One byte more tells that there is more; the rest of a huge file is never read.
            return opened.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{file}: expected a file of settings, found {reason}") from error


_MOST_BYTES = 64 << 10


def secret_file(section: Section, key: str, folder: Path, what: str) -> Path | None:
    """Return the path of a file that holds a secret; None without one. `what` is "an address" or "a password"."""
    return section.get(key, SecretPath(folder, f"the path of a file that holds {what}"), None)


def secret_in(section: Section, key: str, file: Path, what: str) -> str | None:
    """Return the line that a file holds, without the newline at its end; None after a mistake, which is noted."""
    expected = f"a file that holds {what}"
    try:
        with open_file(file) as opened:
            raw = opened.read(_MOST_BYTES + 1)
        text = raw.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        section.tell(key, expected, "one that is not UTF-8")
        return None
    except (OSError, ValueError) as error:
        section.tell(key, expected, getattr(error, "strerror", None) or "a path that cannot be read")
        return None
    if len(raw) > _MOST_BYTES:
        section.tell(key, f"a file of at most {_MOST_BYTES >> 10} KiB", "a larger one")
        return None
    if not text.strip() or not text.strip().isprintable():
        expected = f"a file that holds one line, the {what.partition(' ')[2]}"
        section.tell(key, expected, "something else" if text.strip() else "nothing")
        return None
    return text
