"""Reads Parquet and Arrow files on trial, in a process with limited memory and CPU time that may crash.

A few bytes of such a file can expand to gigabytes, and pyarrow allocates them before it reports anything; some damaged
files make it abort. So this program runs beside the monitor (see `arrow_limits`), receives each file over a socket, and
reads it in a fork of itself. It imports nothing of the monitor, to start fast and to fork without threads.
"""

import gc
import json
import mmap
import os
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Iterator, Mapping
from typing import Any

# Rows of the first batch, while their size is unknown; rows of later batches.
_FIRST_ROWS, _ROWS = 1, 128

_FEWEST_ROWS = 4

_IDLE_SECONDS = 60.0

Answer = dict[str, Any]


def main() -> None:
    """Answer requests until the monitor exits or is idle for a while."""
    # Imported before forking; pyarrow loads some of these on first use.
    import pyarrow.compute  # noqa: PLC0415 - the monitor imports this module too
    import pyarrow.ipc  # noqa: PLC0415
    import pyarrow.parquet  # noqa: F401, PLC0415

    gc.freeze()  # avoids copy-on-write in forks
    requests = socket.socket(fileno=sys.stdin.fileno())
    while select.select([requests], [], [], _IDLE_SECONDS)[0]:
        head, files, _, _ = socket.recv_fds(requests, 4, 1)
        if len(head) < 4 or not files:
            return
        (size,) = struct.unpack("<I", head)
        request = json.loads(requests.recv(size, socket.MSG_WAITALL))
        child = os.fork()
        if not child:
            code = 1
            try:
                requests.sendall(message(_answer(files[0], request)))
                code = 0
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        if status:
            out_of_time = os.WIFSIGNALED(status) and os.WTERMSIG(status) in {signal.SIGXCPU, signal.SIGKILL}
            requests.sendall(message({"problem": "too_large" if out_of_time else "bad_file"}))
        os.close(files[0])


def message(content: Mapping[str, Any]) -> bytes:
    """Return a JSON message with its length prefix."""
    text = json.dumps(content).encode()
    return struct.pack("<I", len(text)) + text


def _answer(file: int, request: Answer) -> Answer:
    size = os.fstat(file).st_size
    with open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123
        held = int(statm.read().split()[0]) * resource.getpagesize()
    # Twice the file, mapped and unpacked, plus the limit.
    most = held + 2 * size + request["most_bytes"]
    _limit(resource.RLIMIT_AS, most)
    _limit(resource.RLIMIT_CPU, request["most_seconds"])
    _limit(resource.RLIMIT_CORE, 0)
    try:
        return _read(memoryview(mmap.mmap(file, 0, access=mmap.ACCESS_READ)), size, request)
    except MemoryError:
        return {"problem": "too_large"}
    except Exception as error:  # noqa: BLE001 - any error of pyarrow
        # Some pyarrow errors say only in their message that an allocation failed.
        return {"problem": "too_large" if "alloc" in str(error) else "bad_file"}


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def _read(data: memoryview, size: int, request: Answer) -> Answer:
    import pyarrow as pa  # noqa: PLC0415

    rows = total = widest = 0
    for whole in _batches(pa.BufferReader(pa.py_buffer(data)), request):
        # Checks that offsets are within their buffers.
        whole.validate(full=True)
        rows += whole.num_rows
        taken = size_of_all(whole)
        total += taken
        if rows > request["most_rows"] or taken > request["row_bytes"] * max(_FEWEST_ROWS, whole.num_rows):
            return {"problem": "too_large"}
        if total > request["harmless"] and (
            total > request["usual_row_bytes"] * rows or (not request["parquet"] and total > request["ratio"] * size)
        ):
            return {"problem": "too_large"}
        if whole.num_rows <= _ROWS:
            widest = max(widest, taken // max(1, whole.num_rows))
            continue
        for start in range(0, whole.num_rows, _ROWS):
            some = whole.slice(start, _ROWS)
            widest = max(widest, size_of_all(some) // some.num_rows)
    return {"widest": widest}


def _batches(source: Any, request: Answer) -> Iterator[Any]:  # noqa: ANN401 - pyarrow has no types
    if not request["parquet"]:
        yield from ipc_batches(source, request["places"])
        return
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415

    def batches(rows: int) -> Iterator[Any]:
        file = ParquetFile(source, read_dictionary=request["texts"], pre_buffer=False)
        yield from file.iter_batches(batch_size=rows, columns=request["columns"], use_threads=False)

    # Column metadata are not used: pyarrow aborts if they are damaged.
    first = next(batches(_FIRST_ROWS), None)
    if first is not None and size_of_all(first) <= _FEWEST_ROWS * request["row_bytes"]:
        yield from batches(_ROWS)
    elif first is not None:
        yield first


def ipc_batches(source: Any, places: list[int]) -> Iterator[Any]:  # noqa: ANN401
    """Yield the batches of an Arrow file or stream, with some columns only."""
    from pyarrow import ipc  # noqa: PLC0415

    opened = open_ipc(source, ipc.IpcReadOptions(use_threads=False, included_fields=places))
    if hasattr(opened, "get_batch"):
        for place in range(opened.num_record_batches):
            yield opened.get_batch(place)
    else:
        yield from opened


def open_ipc(source: Any, options: Any = None) -> Any:  # noqa: ANN401
    """Return the reader of an Arrow file or stream."""
    from pyarrow import ipc  # noqa: PLC0415

    source.seek(0)
    is_file = source.read(6) == b"ARROW1"
    source.seek(0)
    return ipc.open_file(source, options=options) if is_file else ipc.open_stream(source, options=options)


def size_of_all(batch: Any) -> int:  # noqa: ANN401
    """Return the size of a batch in bytes."""
    return sum(map(size_of, batch.columns))


def size_of(column: Any) -> int:  # noqa: ANN401
    """Return the size of a column with numbers as float64, without dictionaries."""
    if hasattr(column, "dictionary"):
        return int(column.indices.nbytes)
    if hasattr(column, "field"):  # a struct
        return sum(map(size_of, column.flatten()))
    if hasattr(column, "values"):  # a list
        return 8 * (len(column) + len(column.flatten()))
    return max(8 * len(column), int(column.nbytes))


if __name__ == "__main__":
    main()
