"""Results of `make torture`."""

import sys
import time
from dataclasses import dataclass, field


@dataclass
class Summary:
    """Counts, lines and problems."""

    kills: int = 0
    records: int = 0
    lost: int = 0
    duplicated: int = 0
    lines: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def show(self, what: str) -> None:
        """Print the progress."""
        rate = self.kills / max(1e-9, time.monotonic() - self.began)
        text = f"{what}: {self.kills:,} kills, {self.records:,} records, {self.lost} lost, {self.duplicated} duplicated"
        print(f"\r{text}, {rate:.2f} kills/s ", end="" if sys.stdout.isatty() else "\n", flush=True)  # noqa: T201

    def add(self, line: str) -> None:
        """Print a line, and keep it for the summary."""
        print(f"\n{line}" if sys.stdout.isatty() else line, flush=True)  # noqa: T201
        self.lines.append(line)
