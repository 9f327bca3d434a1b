"""A file that a command was asked to write: there whole, or as it was before."""

import tempfile
from pathlib import Path


def write_whole(path: Path, content: bytes) -> None:
    """Write a file. When it cannot be written to its end, as on a full disk, what was there before stays."""
    if path.exists() and not path.is_file():
        path.write_bytes(content)  # such as /dev/stdout, which nothing could take the place of
        return
    target = path.resolve()  # a link stays a link
    # A folder of its own, so that nobody who looks for such files finds half of one.
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".cpcmon-") as private:
        whole = Path(private, target.name)
        whole.write_bytes(content)
        whole.replace(target)
