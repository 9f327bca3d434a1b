"""The dashboard, checked against Grafana's types by the TypeScript compiler."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.grafana.dashboard import FILE, all_panels
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


def checked(folder: Path, source: str) -> list[str]:
    """Return the errors of the compiler; skip without a compiler, except in CI."""
    try:
        return complaints(folder, source)
    except NoPackages as error:
        cannot(f"NO TYPES OF GRAFANA ({error})")


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


def test_the_dashboard_has_grafanas_types(tmp_path: Path) -> None:
    assert checked(tmp_path, whole(FILE.read_text("utf-8"))) == []


def test_the_options_of_each_panel_are_those_of_its_kind(tmp_path: Path) -> None:
    assert checked(tmp_path, "\n".join(options())) == []


def test_an_invalid_dashboard_is_rejected(tmp_path: Path) -> None:
    """An invalid enumeration value, and a link without a target: the two tests above can fail."""
    wrong = (
        FILE.read_text("utf-8").replace('"absolute"', '"absolut"', 1).replace('"targetBlank": true', '"blank": 1', 1)
    )
    found = "\n".join(checked(tmp_path, whole(wrong)))
    assert "absolut" in found
    assert "blank" in found


def test_an_option_of_another_kind_of_panel_is_rejected(tmp_path: Path) -> None:
    wrong = "\n".join(options()).replace('"textMode": "value_and_name"', '"textMode": "loud"', 1)
    assert '"loud"' in "\n".join(checked(tmp_path, wrong))
