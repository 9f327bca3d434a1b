"""The exceptions of cpcmon. Messages have three parts: where, what was expected, what was found.

CpcmonError
├── ConfigError             invalid configuration
├── InvalidInput            invalid records
├── InvalidReference        a reference that cannot be made or loaded
├── ServerError             the web server cannot start
├── StateError              the state directory
│   ├── StateInUse          locked by another process
│   ├── StateRefused        cannot be used, left unchanged
│   ├── StatePaused         cannot be written now: the disk is full or read-only
│   └── StateLost           failed; a restart is needed
└── UsageError              invalid options or arguments
"""


class CpcmonError(Exception):
    """Base class of all exceptions of cpcmon."""

    exit_code = 2
    """Exit code of the command. Public: 1 failed while running, 2 invalid input, 3 state in use."""


class InvalidInput(CpcmonError):
    """Invalid records; the message lists the first problems."""


class InvalidReference(CpcmonError):
    """A reference that cannot be made, or a damaged or invalid reference file."""


class UsageError(CpcmonError):
    """Invalid options or arguments."""


class ServerError(CpcmonError):
    """The web server cannot start: its address is in use or not local."""

    exit_code = 1


class StateError(CpcmonError):
    """A problem of the state directory."""


class StateInUse(StateError):
    """Another process holds the state."""

    exit_code = 3


class StateRefused(StateError):
    """Made by a newer version, or on a network filesystem. It is left unchanged."""


class StatePaused(StateError):
    """The state cannot be written now. Nothing was changed: try again later."""

    exit_code = 1


class StateLost(StateError):
    """The state failed: stop, and let a restart verify it."""

    exit_code = 1


class ConfigError(CpcmonError):
    """An invalid configuration; the message lists every problem."""
