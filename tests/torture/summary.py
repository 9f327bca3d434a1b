"""Results of `make torture`, printed on the way and at the end."""

import sys
import time
from dataclasses import dataclass, field


@dataclass
class Summary:
    """The results."""

    kills: int = 0
    records: int = 0
    lost: int = 0
    twice: int = 0
    lines: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def show(self, what: str) -> None:
        """Print the progress."""
        rate = self.kills / max(1e-9, time.monotonic() - self.began)
        text = f"{what}: {self.kills:,} kills, {self.records:,} records, {self.lost} lost, {self.twice} twice"
        print(f"\r{text}, {rate:.2f} kills/s ", end="" if sys.stdout.isatty() else "\n", flush=True)  # noqa: T201

    def say(self, sentence: str) -> None:
        """Print a line."""
        print(f"\n{sentence}" if sys.stdout.isatty() else sentence, flush=True)  # noqa: T201
        self.lines.append(sentence)
