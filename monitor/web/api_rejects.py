"""What was refused, as JSON: `/api/v1/rejects`. Where a record stands and why, never what. `docs/api.md` lists every key."""

from collections.abc import Mapping
from typing import Any

import msgspec

from monitor.web.site import RefusedRecord, Site

VERSION = 1
"""Rises when a key changes its meaning or goes."""


def document(site: Site, _query: Mapping[str, str]) -> bytes | None:
    """Return the counts, and the places of the latest."""
    rejects = site.rejects()
    counts = [
        {"source": source, "reason": reason, "records": count}
        for (source, reason), count in sorted(rejects.counts.items())
    ]
    latest = [_place(one) for one in rejects.latest]
    return msgspec.json.encode({"version": VERSION, "counts": counts, "latest": latest})


def _place(record: RefusedRecord) -> dict[str, Any]:
    return {
        "at": record.at,
        "source": record.source,
        "origin": record.origin,
        "reason": record.reason,
        "number": record.number,
        "offset": record.offset,
        "length": record.length,
        "digest": record.digest,
        "shape": record.shape,
    }
