"""The system calls that tests can make fail."""

import os
from collections.abc import Iterator


class System:
    """The real system. A test overrides one method to inject an error."""

    def open(self, path: str, flags: int, directory: int | None = None) -> int:
        """Open a file relative to an open directory."""
        return os.open(path, flags, dir_fd=directory)

    def stat(self, name: str, directory: int) -> os.stat_result:
        """Stat a name in an open directory, without following links."""
        return os.stat(name, dir_fd=directory, follow_symlinks=False)

    def read(self, file: int, length: int, offset: int) -> bytes:
        """Read up to `length` bytes at an offset."""
        return os.pread(file, length, offset)

    def entries(self, directory: int) -> Iterator["os.DirEntry[str]"]:
        """List an open directory."""
        with os.scandir(directory) as listed:
            yield from listed

    def rename(self, name: str, directory: int, target: str, target_directory: int) -> None:
        """Rename a file between open directories."""
        os.rename(name, target, src_dir_fd=directory, dst_dir_fd=target_directory)

    def write(self, file: int, data: bytes) -> int:
        """Write some bytes; return how many."""
        return os.write(file, data)


def read_fully(system: System, file: int, length: int, offset: int) -> bytes:
    """Read `length` bytes at an offset, fewer only at the end of the file."""
    data = system.read(file, length, offset)
    if len(data) == length or not data:
        return data
    parts = [data]
    done = len(data)
    while done < length and (data := system.read(file, length - done, offset + done)):
        parts.append(data)
        done += len(data)
    return b"".join(parts)
