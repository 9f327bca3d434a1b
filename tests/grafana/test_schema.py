"""The dashboard, checked against Grafana's types by the TypeScript compiler."""

import json
from collections.abc import Iterator

import pytest

from tests.grafana.dashboard import FILE, FOLDER, all_panels
from tests.grafana.typescript import NoPackages, complaints
from tests.servers import cannot

pytestmark = pytest.mark.slow

_KINDS = {
    "barchart": "BarChart",
    "bargauge": "BarGauge",
    "stat": "Stat",
    "state-timeline": "StateTimeline",
    "status-history": "StatusHistory",
    "table": "Table",
    "timeseries": "TimeSeries",
}
"""How Grafana names the types of each kind of panel."""


def whole(text: str) -> str:
    """Return a program that checks a dashboard against its type."""
    return f'import type {{ WrittenDashboard }} from "./written.mjs";\nexport const it: WrittenDashboard = {text};\n'


def options() -> Iterator[str]:
    """Yield programs that check the options of each panel against the types of its kind."""
    yield 'import type { Written } from "./written.mjs";'
    for kind, name in _KINDS.items():
        folder = f"@grafana/schema/dist/esm/raw/composable/{kind.replace('-', '')}/panelcfg/x"
        yield f'import type * as {name} from "{folder}/{name}PanelCfg_types.gen.d.ts";'
    for panel in all_panels():
        name, number = _KINDS[panel["type"]], panel["id"]
        custom = panel["fieldConfig"]["defaults"].get("custom", {})
        yield f"export const options{number}: Written<Partial<{name}.Options>> = {json.dumps(panel['options'])};"
        # A stat and a bar gauge have no field options.
        if custom:
            yield f"export const field{number}: Written<Partial<{name}.FieldConfig>> = {json.dumps(custom)};"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """The errors of the compiler in the dashboard, its options, and wrong ones of both; skips without a compiler."""
    text, of_panels = FILE.read_text("utf-8"), "\n".join(options())
    invalid = text.replace('"absolute"', '"absolut"', 1).replace('"targetBlank": true', '"blank": 1', 1)
    foreign = of_panels.replace('"textMode": "value_and_name"', '"textMode": "loud"', 1)
    wall = (FOLDER / "cpcmon-wall.json").read_text("utf-8")
    sources = {
        "dashboard": whole(text),
        "wall": whole(wall),
        "options": of_panels,
        "invalid": whole(invalid),
        "foreign": foreign,
    }
    try:
        return complaints(tmp_path_factory.mktemp("types"), sources)
    except NoPackages as error:
        cannot(f"NO TYPES OF GRAFANA ({error})")


def test_the_dashboard_has_grafanas_types(found: dict[str, list[str]]) -> None:
    assert found["dashboard"] == found["wall"] == []


def test_the_options_of_each_panel_are_those_of_its_kind(found: dict[str, list[str]]) -> None:
    assert found["options"] == []


def test_an_invalid_dashboard_is_rejected(found: dict[str, list[str]]) -> None:
    """An invalid enumeration value, and a link without a target: the two tests above can fail."""
    errors = "\n".join(found["invalid"])
    assert "absolut" in errors
    assert "blank" in errors


def test_an_option_of_another_kind_of_panel_is_rejected(found: dict[str, list[str]]) -> None:
    assert '"loud"' in "\n".join(found["foreign"])
