"""What `docs/configuration.md` promises is so."""

import re
from pathlib import Path

import pytest

from monitor.config.reading import read_config
from monitor.core.alerts import AlertType
from monitor.errors import ConfigError
from tests.config.settings import declared
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
KAFKA_ONLY = {"sources[].dead_letters.", "sources[].tls.", "sources[].sasl."}


def _tables() -> dict[str, tuple[str, str]]:
    """Return kind and default of each setting in the tables, by the name that `declared` has for it."""
    found = {}
    for section in PAGE.partition("\n## Settings\n")[2].partition("\n## Alerts\n")[0].split("\n### ")[1:]:
        title = re.match(r"`([^`]+)`", section)
        prefix = f"{title.group(1)}." if title else ""
        type_ = re.match(r"`sources\[\]` of type `(\w+)`", section)
        if type_ or prefix in KAFKA_ONLY:
            prefix = prefix.replace("[]", f"[{type_.group(1) if type_ else 'kafka'}]")
        for name, kind, default in re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| .* \|$", section, re.MULTILINE):
            found[prefix + name] = (kind, default)
    return found


def test_the_tables_list_exactly_the_settings_that_the_code_reads() -> None:
    """In both directions."""
    assert set(_tables()) == set(declared())


def test_the_tables_give_kinds_and_defaults_as_they_are() -> None:
    """Where a default depends on something, the cell holds each of them."""
    reported = _tables()
    wrong = []
    for path, settings in declared().items():
        kind, default = reported[path]
        # The list of estimators is long, and stands on a page of its own.
        if kind not in {settings[0].kind.type_name, "an estimator"}:
            wrong.append(f"{path}: {settings[0].kind.type_name}")
        shown = {one.default_text() for one in settings}
        cells = set(re.findall(r"`([^`]+)`", default)) or {default}
        if not shown <= cells or (len(shown) == 1 and cells != shown):
            wrong.append(f"{path}: {shown}")
    assert wrong == []


def test_the_page_explains_every_type_of_alert() -> None:
    """The closed list, in its order."""
    section = PAGE.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == [str(kind) for kind in AlertType]


def test_the_errors_on_the_page_are_those_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentences come out of a file that has these mistakes in these lines."""
    (block,) = re.findall(r"```\n(config\.yaml:12.*?)```", PAGE, re.DOTALL)
    lines = ["storage: {path: state}", "sources:", "  - {name: results, type: directory, path: inbox}", "models:"]
    lines += ["  - name: density", *[""] * 5, "    window:", "      records: -5", "", "    evaluat: {every: 60s}"]
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text("\n".join(lines))
    with pytest.raises(ConfigError) as caught:
        read_config(Path("config.yaml"))
    assert str(caught.value) == block.strip()
