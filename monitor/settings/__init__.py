"""The settings toolkit: typed YAML, every problem at once, with line numbers.

`expanded` is here, without the YAML reader, which is slow to import.
"""

import os
import re

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def expanded(text: str) -> str:
    """Expand `~`, `~user` and environment variables; raises ValueError for an unknown one, unlike `os.path.expandvars`."""
    path = os.path.expanduser(text)  # noqa: PTH111 - Path normalises
    if path.startswith("~"):
        raise ValueError(f"no home directory is known for {text.partition('/')[0]}")
    return _VARIABLE.sub(_value, path)


def _value(found: re.Match[str]) -> str:
    name = found[1] or found[2]
    value = os.environ.get(name)
    if not value and name == "HOSTNAME":
        # Shells set it, and containers have it, but services do not.
        value = os.uname().nodename
    if not value:
        raise ValueError(f"the environment variable {name} is not set")
    return value
