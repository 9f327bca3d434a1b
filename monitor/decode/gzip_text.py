"""Text files packed with gzip: checked as a whole before anything of them is used, and never unpacked without bound."""

import zlib
from typing import BinaryIO

from monitor.decode.rejections import Problem, Reason

MAX_EXPANDED_BYTES = 1 << 30
"""What a file may hold once unpacked."""

SUSPECT_RATIO = 200
"""How many times larger than packed no honest records are."""

HARMLESS_BYTES = 16 << 20
"""What may be unpacked before the ratio is looked at: blank lines and constant records pack very well too."""

_READ_BYTES = 1 << 16
_GZIP = 16 + zlib.MAX_WBITS

_CUT_SHORT = Problem(Reason.BAD_FILE, "a whole gzip file", "one that is cut short")
_DAMAGED = Problem(Reason.BAD_FILE, "a gzip file", "a damaged one")


class GzipText:
    """What a gzip file holds; checks the whole file when it is made, and raises `RefusedFile` then."""

    def __init__(self, where: str, file: BinaryIO) -> None:
        self._where = where
        self._file = file
        self._start()
        while self.read(_READ_BYTES):
            pass
        self._start()

    def _start(self) -> None:
        self._file.seek(0)
        self._inflate = zlib.decompressobj(_GZIP)
        self._packed = b""
        self._taken = 0
        self._given = 0
        # A file of no bytes at all is no gzip file.
        self._inside = True

    def read(self, size: int) -> bytes:
        """Return at most so many bytes of the text, and none only at its end."""
        while True:
            if not self._packed and not self._inflate.unconsumed_tail:
                self._packed = self._file.read(_READ_BYTES)
                self._taken += len(self._packed)
            given = self._inflate.unconsumed_tail or self._packed
            if not given and not self._inside:
                return b""
            self._packed = b""
            try:
                text = self._inflate.decompress(given, size)
            except zlib.error as error:
                raise _DAMAGED.of_file(self._where) from error
            if not given and not text:
                raise _CUT_SHORT.of_file(self._where)
            self._inside = True
            if self._inflate.eof:
                self._next_member()
            if text:
                self._count(text)
                return text

    def _next_member(self) -> None:
        # Files may be joined end to end, and filled up with zeros.
        rest = self._inflate.unused_data
        while rest and not rest.strip(b"\0"):
            rest = self._file.read(_READ_BYTES)
            self._taken += len(rest)
        self._packed = rest.lstrip(b"\0")
        self._inflate = zlib.decompressobj(_GZIP)
        self._inside = False

    def _count(self, text: bytes) -> None:
        self._given += len(text)
        if self._given > MAX_EXPANDED_BYTES:
            expected = f"at most {MAX_EXPANDED_BYTES >> 30} GiB once unpacked"
            raise Problem(Reason.TOO_LARGE, expected, "more").of_file(self._where)
        if self._given > HARMLESS_BYTES and self._given > SUSPECT_RATIO * self._taken:
            expected = f"text at most {SUSPECT_RATIO} times larger than packed"
            raise Problem(Reason.TOO_LARGE, expected, "more").of_file(self._where)
