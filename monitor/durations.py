"""Durations as people write them: `90s`, `30m`, `12h`, `7d`."""

import re

from monitor.errors import UsageError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_FORM = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhdw])")


def seconds(text: str, where: str) -> float:
    """Return a duration in seconds; `where` names the setting in the message when it is none."""
    found = _FORM.fullmatch(text.strip())
    if found is None or float(found.group(1)) == 0.0:
        raise UsageError(f"{where}: expected a duration such as 90s, 30m, 12h or 7d, found {text!r}")
    return float(found.group(1)) * _UNITS[found.group(2)]
