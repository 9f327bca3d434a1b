"""axe-core: what on a page some people cannot use, said by the tool that others say it with."""

from functools import cache
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests.npm import NoPackages, packages
from tests.servers import cannot

_RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


def complaints(page: Page) -> list[str]:
    """Return what is wrong with a page as it stands: the rule, what it asks for, and the elements that do not keep it."""
    page.evaluate(_source())
    found = page.evaluate("rules => axe.run(document, {runOnly: rules})", _RULES)
    # A tool that did not look has no complaints either.
    assert len(found["passes"]) > 10, found["passes"]
    return [_told(one) for one in found["violations"]]


def _told(violation: dict[str, Any]) -> str:
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
