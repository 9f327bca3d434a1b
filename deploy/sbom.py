"""Write the SBOM: the packages of the lock, as a CycloneDX 1.5 document.

python deploy/sbom.py requirements.lock > sbom.cdx.json
"""  # noqa: INP001 - a script, no package

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

_PROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def packages(lock: str) -> dict[str, tuple[str, list[str]]]:
    """Return the version of each locked package, and the packages that need it."""
    found: dict[str, tuple[str, list[str]]] = {}
    for entry in re.split(r"\n(?=[a-z0-9])", lock):
        pinned = re.match(r"([a-z0-9._-]+)==([^\s;\\]+)", entry)
        if pinned is None:
            continue
        reasons = re.findall(r"^ +#(?: via)? +(?!via\b)([^\s(]+)", entry, re.MULTILINE)
        found[pinned.group(1)] = (pinned.group(2), [reason for reason in reasons if reason != "-c"])
    return found


def document(lock: str, project: dict[str, Any]) -> dict[str, Any]:
    """Return the document, which depends on the lock alone."""
    locked = packages(lock)
    own = project["name"]
    purls = {name: f"pkg:pypi/{name}@{version}" for name, (version, _) in locked.items()}
    purls[own] = f"pkg:pypi/{own}@{project['version']}"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": purls[own],
                "name": own,
                "version": project["version"],
                "purl": purls[own],
                "licenses": [{"license": {"id": project["license"]}}],
            }
        },
        "components": [
            {"type": "library", "bom-ref": purls[name], "name": name, "version": version, "purl": purls[name]}
            for name, (version, _) in locked.items()
        ],
        "dependencies": [
            {"ref": purls[name], "dependsOn": [purls[other] for other in locked if name in locked[other][1]]}
            for name in purls
        ],
    }


def main() -> int:
    """Write the document to standard output."""
    if len(sys.argv) != 2:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    project = tomllib.loads(_PROJECT.read_text(encoding="utf-8"))["project"]
    lock = Path(sys.argv[1]).read_text(encoding="utf-8")
    sys.stdout.write(json.dumps(document(lock, project), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
