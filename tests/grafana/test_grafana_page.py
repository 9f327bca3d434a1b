"""`docs/grafana.md` matches the dashboard."""

import re
from pathlib import Path

from tests.grafana.dashboard import DASHBOARD

_ROOT = Path(__file__).resolve().parents[2]
_PAGE = (_ROOT / "docs" / "grafana.md").read_text("utf-8")
_PROVIDER = (_ROOT / "deploy" / "grafana" / "provisioning" / "dashboards" / "cpcmon.yml").read_text("utf-8")


def test_the_dashboard_is_installed_in_the_folder_of_its_provider() -> None:
    (installed,) = re.findall(r"^ *install .*/cpcmon\.json (\S+)/cpcmon\.json$", _PAGE, re.MULTILINE)
    assert f"path: {installed}\n" in _PROVIDER


def test_every_installed_file_exists() -> None:
    named = set(re.findall(r"deploy/grafana/[\w./-]+\.(?:json|yml)", _PAGE))
    assert len(named) == 4
    assert all((_ROOT / one).is_file() for one in named)


def test_every_row_is_explained() -> None:
    rows = [one["title"].split(":")[0].split("(")[0].strip() for one in DASHBOARD["panels"] if one["type"] == "row"]
    rows = [re.sub(r"[.?].*", "", one) for one in rows]
    explained = re.findall(r"^\*\*(.+?)[.?]\*\*", _PAGE, re.MULTILINE)
    assert explained[: len(rows)] == rows


def test_every_choice_is_explained() -> None:
    labels = [one["label"] for one in DASHBOARD["templating"]["list"] if one.get("hide") != 2]
    table = _PAGE.split("| above the panels | what |")[1].split("\n\n")[0]
    explained = [name for row in re.findall(r"^\| ([A-Z][\w ,]+) \|", table, re.MULTILINE) for name in row.split(", ")]
    assert explained == labels
