"""Files of settings and secrets. Only regular files are opened, and only a bounded size is read.

Opening a pipe blocks until there is a writer. During a reload that would block the daemon and its watchdog.
"""

import errno
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from monitor.errors import ConfigError, Problem
from monitor.settings.kinds import SecretPath
from monitor.settings.section import Section, SettingsFindings
from monitor.settings.yaml_text import (
    MOST_BYTES,
    InvalidValue,
    SettingProblem,
    YamlMap,
    compose,
    describe,
    raise_problems,
)


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading; raises OSError for anything else."""
    # O_NONBLOCK: opening a pipe does not block. It has no effect on regular files.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check(os.fstat(number))
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def problem_of(path: Path) -> str | None:
    """Return why a path is not a regular file; None if it is one. Permissions are not checked."""
    try:
        _check(path.stat())
    except OSError as error:
        return error.strerror or type(error).__name__
    return None


def file_stamp(path: Path) -> object:
    """Return a value that changes when a file is replaced, written, created or deleted."""
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _check(found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "a pipe or a device")


@dataclass(frozen=True, slots=True)
class SettingsDocument:
    """A file of settings. Read its root, then call `finish`."""

    file: Path
    root: Section
    digest: str
    """SHA-256 of the content."""

    @property
    def findings(self) -> SettingsFindings:
        """Problems and other findings so far."""
        return self.root.findings

    def finish(self) -> None:
        """Raise ConfigError with all problems, if there are any."""
        if problems := self.findings.all_problems():
            raise_problems(self.file, problems)


def open_document(file: Path) -> SettingsDocument:
    """Open a file of settings; raises ConfigError if it is not YAML with settings."""
    raw = _content(file)
    findings = SettingsFindings()
    try:
        tree = compose(raw, findings.problems)
    except InvalidValue as error:
        raise_problems(file, [*findings.problems, *error.problems])
    if not isinstance(tree, YamlMap):
        found = "an empty file" if tree is None else describe(tree)
        line = 1 if tree is None else tree.line
        raise_problems(file, [SettingProblem("", "settings", found, line)])
    return SettingsDocument(file, Section(findings, "", tree, tree.line), hashlib.sha256(raw).hexdigest())


def _content(file: Path) -> bytes:
    try:
        with open_file(file) as opened:
            # One byte more than allowed shows that the file is too large.
            return opened.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(Problem(str(file), "a file of settings", reason)) from error


_MOST_BYTES = 64 << 10


def secret_file(section: Section, key: str, folder: Path, what: str) -> Path | None:
    """Return the path of a secret file; None without one. `what` is "a URL" or "a password"."""
    return section.get(key, SecretPath(folder, f"the path of a file with {what}"), None)


def read_line(section: Section, key: str, file: Path, what: str) -> str | None:
    """Return the content of a file of one line; None after a problem, which is reported."""
    expected = f"a file with {what}"
    try:
        with open_file(file) as opened:
            raw = opened.read(_MOST_BYTES + 1)
        text = raw.decode("utf-8").rstrip("\r\n")
    except UnicodeDecodeError:
        section.report(key, expected, "a file that is not UTF-8")
        return None
    except (OSError, ValueError) as error:
        section.report(key, expected, getattr(error, "strerror", None) or "an invalid path")
        return None
    if len(raw) > _MOST_BYTES:
        section.report(key, f"a file of at most {_MOST_BYTES >> 10} KiB", "a larger one")
        return None
    if not text.strip() or not text.strip().isprintable():
        expected = f"a file with one line, the {what.partition(' ')[2]}"
        section.report(key, expected, "several lines" if text.strip() else "an empty file")
        return None
    return text
