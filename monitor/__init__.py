"""cpcmon tells how accurate a deployed classifier is now, without labels.

>>> from monitor import Reference, estimate                                  # doctest: +SKIP
>>> reference = Reference.load("density.ref")                                # doctest: +SKIP
>>> print(estimate(reference, probabilities)["consensus"])                   # doctest: +SKIP
0.861 (0.842 to 0.878), 2,000 records
"""

from monitor.core.calibration import WindowEstimate
from monitor.core.estimate import Estimate, Interval, NoEstimate
from monitor.errors import CpcmonError, InvalidInput, InvalidReference, UsageError
from monitor.offline import estimate
from monitor.reference_file import Reference

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
