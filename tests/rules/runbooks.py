"""Runbooks: sections, Prometheus queries, shell commands."""

import re
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT

FOLDER = ROOT / "docs" / "runbooks"

_PROGRAMS = "cpcmon|systemctl|journalctl|curl|openssl|df|findmnt|dmesg|amtool|promtool|kafka-consumer-groups.sh"
_COMMAND = re.compile(rf"(?:{_PROGRAMS})(?: .+)?")
_SERIES = re.compile(r"\b(?:cpcmon[_:]|process_|prometheus_|alertmanager_|up\{|ALERTS\{)")


@dataclass(frozen=True, slots=True)
class Runbook:
    """One page."""

    path: Path

    @property
    def sections(self) -> dict[str, str]:
        """The text of each section, in order."""
        parts = re.split(r"^## (.+)\n", self.path.read_text(), flags=re.MULTILINE)[1:]
        return dict(zip(parts[::2], (text.strip() for text in parts[1::2]), strict=True))

    @property
    def _to_paste(self) -> list[str]:
        return re.findall(r"`([^`\n]+)`", self.sections["Diagnosis"] + self.sections["Mitigation"])

    @property
    def commands(self) -> list[str]:
        """Shell commands."""
        return [one for one in self._to_paste if _COMMAND.fullmatch(one)]

    @property
    def queries(self) -> list[str]:
        """Prometheus queries."""
        return [one for one in self._to_paste if _SERIES.search(one) and not _COMMAND.fullmatch(one)]


RUNBOOKS = {path.stem: Runbook(path) for path in sorted(FOLDER.glob("*.md"))}
