"""Where a field stands in a record: a name, or a dotted path into nested objects."""

import re
from collections.abc import Iterable

from monitor.errors import UsageError

Path = tuple[str, ...]
"""Names of fields, each inside the object that the one before it holds."""

_PART = re.compile(r"(?:[^.\\]|\\.)+", re.DOTALL)


def split_path(text: str, where: str) -> Path:
    r"""Return the names on a dotted path; a dot that belongs to a name is written `\.`, a backslash `\\`."""
    parts = _PART.findall(text)
    if not parts or ".".join(parts) != text:
        raise UsageError(f"{where}: expected a field's name or a dotted path, found {text!r}")
    return tuple(re.sub(r"\\(.)", r"\1", part, flags=re.DOTALL) for part in parts)


def join_path(path: Path) -> str:
    """Return a path as users write it."""
    return ".".join(name.replace("\\", "\\\\").replace(".", "\\.") for name in path)


def check_paths(outputs: Iterable[Path], others: Iterable[Path], where: str) -> None:
    """Refuse paths of which one goes through a value that another one reads, and outputs that are read as something else."""
    wanted, rest = set(outputs), set(others)
    if both := wanted & rest:
        raise UsageError(f"{where}: expected another field than that of the outputs, found {join_path(min(both))}")
    for path in wanted | rest:
        for length in range(1, len(path)):
            if path[:length] in wanted | rest:
                found = f"{join_path(path[:length])} and {join_path(path)}"
                raise UsageError(f"{where}: expected fields outside one another, found {found}")
