"""`docs/api.md` matches the code."""

import json
import re
from typing import Any

from monitor.web import api
from monitor.web.site import Site
from tests.conftest import ROOT
from tests.web.sample_site import sample_site
from tests.web.test_api import site_with_labels, site_with_performance

API = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")


def _keys(title: str) -> set[str]:
    (table,) = re.findall(rf"^\| of {title} \| what \|\n\|---\|---\|\n((?:\|.*\n)+)", API, re.MULTILINE)
    return {key for row in table.splitlines() for key in re.findall(r"`(\w+)`", row.split("|")[1])}


def _document(found: bytes | None) -> Any:
    assert found is not None
    return json.loads(found)


def test_keys_match_the_documentation(site: Site) -> None:
    configuration = _document(api.configuration_document(site, {}))
    reference = _document(api.reference_document(site, {"model": "density"}))
    beyond = _document(api.performance_document(site_with_performance(), {"model": "density", "segment": "site=A"}))
    labels = _document(api.labels_document(site_with_labels(), {"model": "density"}))
    alerts = _document(api.alerts_document(sample_site(), {}))
    for title, one in {
        "the alerts": alerts,
        "a transition": alerts["history"][0],
        "labels of a window": labels,
        "a labelled class": labels["classes"][0],
        "a block": labels["blocks"][0],
        "a performance": beyond,
        "a metric": beyond["performance"][0],
        "a class in the mix": beyond["class_mix"][0],
        "the configuration": configuration,
        "a setting": configuration["settings"][0],
        "a reference": reference,
        "a class": reference["classes"][0],
        "a bin": reference["reliability"][0],
    }.items():
        assert _keys(title) == set(one), title
    (row,) = re.findall(r"^\| `warnings` \|(.*)$", API, re.MULTILINE)
    assert set(reference["warnings"][0]) == set(re.findall(r"`(\w+)`", row))
