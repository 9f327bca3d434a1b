"""Paths as people write them: `~/state`, `$STATE_DIRECTORY/windows`, `${CREDENTIALS_DIRECTORY}/webhook.url`."""

import os
import re

_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


def expanded(text: str) -> str:
    """Fill in `~`, `~user` and environment variables; raises ValueError that says what has no value.

    Unlike `os.path.expandvars`, which leaves it as it is: a folder would be made by the variable's name.
    """
    path = os.path.expanduser(text)  # noqa: PTH111 - Path would drop what is no part of a path before it is checked
    if path.startswith("~"):
        raise ValueError(f"no home folder is known for {text.partition('/')[0]}")
    return _VARIABLE.sub(_value, path)


def _value(found: re.Match[str]) -> str:
    name = found[1] or found[2]
    if not (value := os.environ.get(name)):
        raise ValueError(f"the environment variable {name} is not set")
    return value
