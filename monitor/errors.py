"""Every exception cpcmon raises on purpose.

CpcmonError                 anything a caller may want to catch as ours
├── InvalidInput            records that break the rules of `monitor.decode`
├── InvalidReference        a reference that cannot be made, read or trusted
└── UsageError              a command or call whose words do not fit together

Messages have three parts: where, what was expected, what was found.
"""


class CpcmonError(Exception):
    """Anything that cpcmon raises on purpose."""


class InvalidInput(CpcmonError):
    """Records that cannot be used; the message lists the first offences."""


class InvalidReference(CpcmonError):
    """A reference that cannot be made from its data, or a reference file that cannot be trusted."""


class UsageError(CpcmonError):
    """A command or call whose words do not fit together."""
