"""Files that the configuration consists of or names: opened only if they are files.

Opening a pipe waits for whoever writes to it. At a reload that would be the daemon itself, which then neither stops nor
tells systemd that it lives.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_file(path: Path) -> BinaryIO:
    """Open a file to read it; raises OSError, also for what is there and is no file."""
    # Without O_NONBLOCK the opening itself would wait. It has no effect on a file.
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _check(os.fstat(number))
        return os.fdopen(number, "rb")
    except BaseException:
        os.close(number)
        raise


def problem_of(path: Path) -> str | None:
    """Say what keeps a path from being a file that can be opened; None when nothing does, or only opening it tells."""
    try:
        _check(path.stat())
    except OSError as error:
        return error.strerror or type(error).__name__
    return None


def _check(found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "a pipe or a device")
