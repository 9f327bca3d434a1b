"""Every exception cpcmon raises on purpose.

CpcmonError                 anything a caller may want to catch as ours
├── ConfigError             a configuration that cannot be used
├── InvalidInput            records that break the rules of `monitor.records`
├── InvalidReference        a reference that cannot be made, read or trusted
├── ServerError             the web server cannot serve
├── StateError              the state folder
│   ├── StateInUse          another process holds it
│   ├── StateRefused        it must not be used as it is, and was left untouched
│   ├── StatePaused         it cannot be written for the moment: the disk is full or read-only
│   └── StateLost           it failed in a way that only a new start can clear
└── UsageError              a command or call whose words do not fit together

Messages have three parts: where, what was expected, what was found.
"""


class CpcmonError(Exception):
    """Anything that cpcmon raises on purpose."""

    exit_code = 2
    """What a command that it ends returns. Public: 1 failed while running, 2 to be mended by whoever started it, 3 in use."""


class InvalidInput(CpcmonError):
    """Records that cannot be used; the message lists the first offences."""


class InvalidReference(CpcmonError):
    """A reference that cannot be made from its data, or a reference file that cannot be trusted."""


class UsageError(CpcmonError):
    """A command or call whose words do not fit together."""


class ServerError(CpcmonError):
    """The web server cannot serve: its address is in use, or not of this machine. Exit code 1."""

    exit_code = 1


class StateError(CpcmonError):
    """Something about the state folder."""


class StateInUse(StateError):
    """Another process holds the state; exit code 3."""

    exit_code = 3


class StateRefused(StateError):
    """State that must not be used as it is: made by a newer cpcmon, or on a network filesystem. It is left untouched."""


class StatePaused(StateError):
    """State that cannot be written for the moment. Nothing was changed: try again later."""

    exit_code = 1


class StateLost(StateError):
    """State that failed in a way that cannot be trusted any more: stop, and let a new start verify it."""

    exit_code = 1


class ConfigError(CpcmonError):
    """A configuration that cannot be used; the message lists every mistake. Exit code 2."""
