"""Accessibility checks with axe-core."""

from functools import cache
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests.npm import NoPackages, packages
from tests.servers import cannot

_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def complaints(page: Page) -> list[str]:
    """Return the violations on a page: rule, requirement and elements."""
    page.evaluate(_source())
    found = page.evaluate("rules => axe.run(document, {runOnly: rules})", _RULES)
    # Ensures that axe ran.
    assert len(found["passes"]) > 10, found["passes"]
    return [_format(one) for one in found["violations"]]


def _format(violation: dict[str, Any]) -> str:
    where = "; ".join(
        f"{' '.join(map(str, node['target']))}: {node['failureSummary']}" for node in violation["nodes"][:3]
    )
    more = f" (and {len(violation['nodes']) - 3} more)" if len(violation["nodes"]) > 3 else ""
    return f"{violation['id']}: {violation['help']}: {where}{more}"


@cache
def _source() -> str:
    try:
        folder = packages(Path(__file__).with_name("axe") / "package.json", "axe")
    except NoPackages as error:
        cannot(f"NO AXE-CORE ({error})")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")
