"""Grafana's types and the TypeScript compiler, fetched by npm once and kept outside the tree."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from tests.npm import NoPackages, node, packages

__all__ = ["NoPackages", "complaints"]

_TYPES = Path(__file__).with_name("types")
_SETTINGS = {"strict": True, "noEmit": True, "module": "nodenext", "target": "es2022", "types": []}


def complaints(folder: Path, sources: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the errors in each source, which may import `./written.mjs`; raises NoPackages without the types."""
    types = packages(_TYPES / "package.json", "grafana-types")
    (folder / "node_modules").symlink_to(types / "node_modules")
    shutil.copy(_TYPES / "written.d.mts", folder)
    for name, source in sources.items():
        (folder / f"{name}.mts").write_text(source, "utf-8")
    files = [f"{name}.mts" for name in sources]
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": _SETTINGS, "files": files}))
    ran = node(folder, "node_modules/typescript/bin/tsc", "--project", ".", "--pretty", "false")
    found: dict[str, list[str]] = {name: [] for name in sources}
    place = ""
    for line in ran.stdout.splitlines():
        # The lines after the first of an error are indented.
        place = place if line.startswith(" ") else line.split(".mts(")[0]
        found.setdefault(place, []).append(line)
    # A compiler that did not run reports no errors either.
    assert bool(ran.stdout) == bool(ran.returncode), ran.stderr
    assert found.keys() == sources.keys(), ran.stdout
    return found
