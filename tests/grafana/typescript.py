"""Grafana's types and the TypeScript compiler, fetched by npm once and kept outside the tree."""

import json
import shutil
from pathlib import Path

from tests.npm import NoPackages, node, packages

__all__ = ["NoPackages", "complaints"]

_TYPES = Path(__file__).with_name("types")
_SETTINGS = {"strict": True, "noEmit": True, "module": "nodenext", "target": "es2022", "types": []}


def complaints(folder: Path, source: str) -> list[str]:
    """Return the errors in a source that may import `./written.mjs`; raises NoPackages without the types."""
    types = packages(_TYPES / "package.json", "grafana-types")
    (folder / "node_modules").symlink_to(types / "node_modules")
    shutil.copy(_TYPES / "written.d.mts", folder)
    (folder / "source.mts").write_text(source, "utf-8")
    (folder / "tsconfig.json").write_text(json.dumps({"compilerOptions": _SETTINGS, "files": ["source.mts"]}))
    ran = node(folder, "node_modules/typescript/bin/tsc", "--project", ".", "--pretty", "false")
    found = ran.stdout.splitlines()
    # A compiler that did not run reports no errors either.
    assert bool(found) == bool(ran.returncode), ran.stderr
    return found
