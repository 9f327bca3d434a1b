"""A file of settings, opened: read whole, within limits, into one group of settings."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from monitor.configuration.plain_file import open_file
from monitor.configuration.problems import Problem, raise_problems
from monitor.configuration.section import Findings, Section
from monitor.configuration.yaml_text import MOST_BYTES, Settings, Unreadable, compose, shown
from monitor.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Document:
    """A file of settings. Read its root, then `finish`."""

    file: Path
    root: Section
    digest: str
    """Tells one file's content from another's."""

    @property
    def findings(self) -> Findings:
        """What has come to light so far."""
        return self.root.findings

    def finish(self) -> None:
        """Raise ConfigError with all mistakes, if there are any; unknown keys are those that nobody asked for."""
        if problems := self.findings.all_problems():
            raise_problems(self.file, problems)


def open_document(file: Path) -> Document:
    """Open a file of settings; raises ConfigError when nothing can be made of it."""
    raw = _content(file)
    findings = Findings()
    try:
        tree = compose(raw, findings.problems)
    except Unreadable as error:
        raise_problems(file, [*findings.problems, error.problem])
    if not isinstance(tree, Settings):
        found = "an empty file" if tree is None else shown(tree)
        line = 1 if tree is None else tree.line
        raise_problems(file, [Problem(line, "", "settings", found)])
    return Document(file, Section(findings, "", tree, tree.line), hashlib.sha256(raw).hexdigest())


def _content(file: Path) -> bytes:
    try:
        with open_file(file) as opened:
            # One byte more tells that there is more; the rest of a huge file is never read.
            return opened.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{file}: expected a file of settings, found {reason}") from error
