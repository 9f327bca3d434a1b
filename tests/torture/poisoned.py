"""cpcmon with a decoder that crashes or hangs on some files, for tests of the crash guard."""

import os
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any, BinaryIO

from monitor.records.decoder import RecordDecoder
from monitor.records.record_batch import Format, RecordBatch, TextPiece
from tests.torture.process import run

POISON = b"poison"
SLOW = b"slow"


class _Poisoned(RecordDecoder):
    def text(self, piece: TextPiece) -> RecordBatch:
        _act_on(piece.data)
        return super().text(piece)

    def settled(self, where: str, file: BinaryIO, format_: Format, *, skip: int = 0) -> Iterator[RecordBatch]:
        _act_on(file.read())
        file.seek(0)
        yield from super().settled(where, file, format_, skip=skip)


def _act_on(data: bytes) -> None:
    if POISON in data:
        os._exit(139)
    if SLOW in data:
        sys.stderr.write("decoding something slow\n")
        sys.stderr.flush()
        time.sleep(float(os.environ.get("SLOW_SECONDS", "0")))


if __name__ == "__main__":
    decoder: Any = import_module("monitor.records.decoder")
    decoder.RecordDecoder = _Poisoned
    sys.exit(run(sys.argv[1:]))
