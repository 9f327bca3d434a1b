"""The configuration as it is in force, setting by setting, for people to look at; secrets are hidden."""

from dataclasses import dataclass

HIDDEN = "(hidden)"
"""Stands in place of what nobody should read: passwords, keys, tokens, addresses that may hold them."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting."""

    path: str
    """As messages name it: `models[0].window.records`."""
    value: str
    """As a file would write it, or HIDDEN."""
    line: int | None
    """Where the file says so; None where it says nothing, and this is the default."""
