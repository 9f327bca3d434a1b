"""Where a refused line stands and what it looks like, without anything of what it says."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from monitor.decode.arrived import Pointer
from monitor.decode.field_paths import Path
from monitor.decode.json_problems import find, is_absent, read_line
from monitor.decode.record_format import ModelFormat, RecordFields
from monitor.decode.refusals import Refused
from monitor.decode.rejections import Problem

_DIGEST_BYTES = 8
_RAW_BYTES = 4 << 10

_MOST_SHAPED_BYTES = 64 << 10
"""Lines beyond which no shape is told: to parse them again would take longer than it is worth."""


@dataclass(frozen=True, slots=True)
class LinePointers:
    """Makes pointers to the refused lines of one piece."""

    data: bytes
    offset: int
    hash_key: bytes
    keep_raw: bool
    shape: "Shape | None"

    def __call__(self, refused: Refused) -> Pointer:
        """Return where a line stands."""
        if refused.start < 0:
            return Pointer(refused.reason, refused.number)
        line = self.data[refused.start : refused.end]
        return Pointer(
            refused.reason,
            refused.number,
            self.offset + refused.start,
            len(line),
            blake2b(line, digest_size=_DIGEST_BYTES, key=self.hash_key).hexdigest(),
            None if self.shape is None or len(line) > _MOST_SHAPED_BYTES else self.shape.of(line),
            line[:_RAW_BYTES] if self.keep_raw else None,
        )


class Shape:
    """Tells types and lengths of the fields that were asked for, by the names that the configuration gives them."""

    def __init__(self, models: Sequence[ModelFormat], fields: RecordFields) -> None:
        paths: dict[str, Path] = {}
        for model in models:
            outputs = zip(fields.outputs(model), fields.output_paths(model), strict=True)
            paths |= dict(list(outputs)[:_MOST_OUTPUTS])
        paths |= {getattr(fields, name): fields.path(name) for name in ("model", "version", "id", "time")}
        for model in models:
            paths |= {fields.segment(name): fields.segment_path(name) for name in model.segment_fields}
        self._paths = paths

    def of(self, line: bytes) -> str | None:
        """Return the shape of a line of JSON; None when it is no object."""
        value = read_line(line)
        if isinstance(value, Problem) or not isinstance(value, dict):
            return None
        found = {name: find(value, path) for name, path in self._paths.items()}
        return ", ".join(f"{name}: {_type_of(one)}" for name, one in found.items() if not is_absent(one))


_MOST_OUTPUTS = 5


def _type_of(value: object) -> str:
    name = _TYPES.get(type(value), "int")
    return f"{name}[{len(value)}]" if isinstance(value, str | list | dict) else name


_TYPES: dict[type, str] = {
    type(None): "null",
    bool: "bool",
    float: "float",
    str: "str",
    list: "list",
    dict: "object",
}
