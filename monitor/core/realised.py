"""Accuracies that became known later, from labels: shown beside the estimates, and never used for one."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Realised:
    """How many of some records turned out right."""

    at: float
    """When the newest of them was made, in Unix seconds."""
    segment: str
    """As the page calls it: `all`, or `site=A`."""
    records: int
    """At least one."""
    right: int

    @property
    def accuracy(self) -> float:
        """The share of them that turned out right."""
        return self.right / self.records
