"""A model's accuracies from late labels as JSON: `/api/v1/realised?model=M`. `docs/api.md` lists every key."""

from collections.abc import Mapping
from typing import Any

import msgspec

from monitor.core.realised import Realised
from monitor.web.site import Site

VERSION = 1
"""Rises when a key changes its meaning or goes."""


def document(site: Site, query: Mapping[str, str]) -> bytes | None:
    """Return what others found out later; None for a model that is not known."""
    model = query.get("model", "")
    if model not in site.reports():
        return None
    told = {"model": model, "remark": site.realised_remark(model), "realised": [_one(x) for x in site.realised(model)]}
    return msgspec.json.encode({"version": VERSION, **told})


def _one(one: Realised) -> dict[str, Any]:
    return {
        "at": one.at,
        "segment": one.segment,
        "records": one.records,
        "right": one.right,
        "accuracy": one.accuracy,
    }
