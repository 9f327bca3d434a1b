"""Decodes messages, for tests."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from monitor.records.decoder import RecordDecoder
from monitor.records.messages import Messages
from monitor.records.record_batch import RecordBatch
from monitor.records.record_schema import ModelFormat, RecordFields
from tests.records.streams import KEY, MODEL

FIRST_OFFSET = 1_000
STAMPED = 1_750_000_000.0
"""The time of the first message; each is a second later than the previous one."""


def receiver(*models: ModelFormat, fields: RecordFields | None = None, **words: Any) -> RecordDecoder:
    """Return a decoder of the default model, or of others."""
    return RecordDecoder(models or (MODEL,), fields, hash_key=KEY, **words)


def receive(*values: bytes, decoder: RecordDecoder | None = None, times: Sequence[float] | None = None) -> RecordBatch:
    """Decode messages, and check that no record is lost."""
    stamped = np.array([STAMPED + place for place in range(len(values))] if times is None else times, dtype=np.float64)
    offsets = range(FIRST_OFFSET, FIRST_OFFSET + len(values))
    decoded = (decoder or receiver()).messages("topic/3", Messages(values, offsets, stamped))
    assert decoded.accepted + decoded.rejected.total() + decoded.ignored == decoded.rows
    assert len(decoded.pointers) == min(2_000, decoded.rejected.total())
    places = [(pointer.offset or 0, pointer.number) for pointer in decoded.pointers]
    assert places == sorted(set(places))
    assert decoded.non_json_lines is None
    return decoded


def message(value: Any, **words: Any) -> bytes:
    """Return a value as JSON."""
    return json.dumps(value, **words).encode()
