"""The exceptions of cpcmon.

CpcmonError                 base class
├── ConfigError             a configuration that cannot be used
├── InvalidInput            records that break the rules of `monitor.records`
├── InvalidReference        a reference that cannot be created or read
├── ServerError             the web server cannot serve
├── StateError              the state directory
│   ├── StateInUse          another process uses it
│   ├── StateRefused        it must not be used, and was not changed
│   ├── StatePaused         it cannot be written now: the disk is full or read-only
│   └── StateLost           it failed; only a restart can recover
└── UsageError              invalid arguments of a command or call
    └── UnknownName         a name that nothing has

Most carry a `Problem`: where, what was expected, what was found.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem with an argument, a setting, a file or a record."""

    where: str
    expected: str
    found: str

    def __str__(self) -> str:
        """Return the message."""
        return f"{self.where}: expected {self.expected}, found {self.found}"


class CpcmonError(Exception):
    """Base class of the exceptions of cpcmon."""

    exit_code = 2
    """The exit code of the command. Public: 1 for a failure while running, 2 for invalid input, 3 for a state in use."""

    def __init__(self, message: str | Problem) -> None:
        super().__init__(str(message))
        self.problem = message if isinstance(message, Problem) else None


class InvalidInput(CpcmonError):
    """Records that cannot be used; the message lists the first rejections."""


class InvalidReference(CpcmonError):
    """A reference that cannot be created, or a reference file that cannot be read."""


class UsageError(CpcmonError):
    """Invalid arguments of a command or call."""


class UnknownName(UsageError):
    """A name that nothing has."""


class ServerError(CpcmonError):
    """The web server cannot listen: its address is in use or not local. Exit code 1."""

    exit_code = 1


class StateError(CpcmonError):
    """A problem with the state directory."""


class StateInUse(StateError):
    """Another process uses the state; exit code 3."""

    exit_code = 3


class StateRefused(StateError):
    """State that must not be used: written by a newer cpcmon, or on a network filesystem. It was not changed."""


class StatePaused(StateError):
    """State that cannot be written now. Nothing was changed: try again later."""

    exit_code = 1


class StateLost(StateError):
    """State that failed and may be inconsistent: stop, and verify it at the next start."""

    exit_code = 1


class ConfigError(CpcmonError):
    """A configuration that cannot be used; the message lists every problem. Exit code 2."""
