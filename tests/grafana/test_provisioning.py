"""The provisioning files for the data source and the dashboard."""

from pathlib import Path
from typing import Any

import yaml

_FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "provisioning"


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((_FOLDER / name).read_text("utf-8"))
    return found


def test_the_data_source_is_a_read_only_prometheus() -> None:
    found = read("datasources/cpcmon.yml")
    (source,) = found["datasources"]
    assert found["apiVersion"] == 1
    assert (source["type"], source["access"], source["editable"]) == ("prometheus", "proxy", False)
    assert not source["isDefault"], "a Grafana with another default would not start"
    assert len(source["uid"]) <= 40
    assert source["jsonData"]["timeInterval"] == "30s", "as often as docs/prometheus.md scrapes"
    assert not any("password" in key.lower() or "secure" in key.lower() for key in source)


def test_the_dashboard_is_read_only() -> None:
    found = read("dashboards/cpcmon.yml")
    (provider,) = found["providers"]
    assert found["apiVersion"] == 1
    assert (provider["type"], provider["disableDeletion"], provider["allowUiUpdates"]) == ("file", True, False)
    assert provider["options"]["path"].startswith("/")
