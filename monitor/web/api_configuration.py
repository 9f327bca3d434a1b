"""The configuration as it is in force, as JSON: `/api/v1/configuration`. `docs/api.md` lists every key."""

from collections.abc import Mapping
from typing import Any

import msgspec

from monitor.configuration.settings import HIDDEN, Setting
from monitor.web.site import Site

VERSION = 1
"""Rises when a key changes its meaning or goes."""


def document(site: Site, query: Mapping[str, str]) -> bytes | None:  # noqa: ARG001  every document is asked alike
    """Return every setting that holds, in the order of the file; what is hidden has no value."""
    return msgspec.json.encode({"version": VERSION, "settings": [_setting(one) for one in site.settings()]})


def _setting(one: Setting) -> dict[str, Any]:
    hidden = one.value == HIDDEN
    return {"path": one.path, "value": None if hidden else one.value, "hidden": hidden, "line": one.line}
