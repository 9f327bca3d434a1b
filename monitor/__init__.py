"""cpcmon estimates the accuracy of a deployed classifier without labels.

>>> from monitor import Reference, estimate                                  # doctest: +SKIP
>>> reference = Reference.load("density.ref")                                # doctest: +SKIP
>>> print(estimate(reference, probabilities)["adaptive"])                   # doctest: +SKIP
0.861 (0.842 to 0.878), 2,000 records
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from monitor.core.calibration import WindowEstimate
    from monitor.core.estimate import Estimate, Interval, NoEstimate
    from monitor.errors import CpcmonError, InvalidInput, InvalidReference, UsageError
    from monitor.reference.offline import estimate
    from monitor.reference.reference import Reference

__all__ = [
    "CpcmonError",
    "Estimate",
    "Interval",
    "InvalidInput",
    "InvalidReference",
    "NoEstimate",
    "Reference",
    "UsageError",
    "WindowEstimate",
    "estimate",
]

_MODULES = {
    "CpcmonError": "monitor.errors",
    "Estimate": "monitor.core.estimate",
    "Interval": "monitor.core.estimate",
    "InvalidInput": "monitor.errors",
    "InvalidReference": "monitor.errors",
    "NoEstimate": "monitor.core.estimate",
    "Reference": "monitor.reference.reference",
    "UsageError": "monitor.errors",
    "WindowEstimate": "monitor.core.calibration",
    "estimate": "monitor.reference.offline",
}


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562), since few commands need numpy."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - this file imports nothing

    value: object = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
