"""Write the rules of deploy/prometheus as the PrometheusRule of the manifests, and into the chart.

python deploy/kubernetes/rules.py, whenever a file there has changed; a test tells when that was forgotten.
"""

from pathlib import Path

import yaml

DEPLOY = Path(__file__).resolve().parents[1]
MANIFEST = DEPLOY / "kubernetes" / "base" / "prometheusrule.yaml"
IN_CHART = DEPLOY / "helm" / "cpcmon" / "files" / "rules.yaml"
_HEAD = "# Made by deploy/kubernetes/rules.py from deploy/prometheus/*.rules.yml: change those, and run it.\n"
_MANIFEST_HEAD = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: cpcmon
spec:
"""


def groups() -> list[dict[str, object]]:
    """Return the groups of all rule files; raises ValueError for a name that occurs twice, which the operator refuses."""
    found: list[dict[str, object]] = []
    for file in sorted((DEPLOY / "prometheus").glob("*.rules.yml")):
        for group in yaml.safe_load(file.read_text(encoding="utf-8"))["groups"]:
            if any(group["name"] == other["name"] for other in found):
                raise ValueError(f"{file}: expected names of groups that no other file has, found {group['name']!r}")
            found.append(group)
    return found


def texts() -> dict[Path, str]:
    """Return what the files made from the rules should hold."""
    body = yaml.safe_dump({"groups": groups()}, sort_keys=False, allow_unicode=True, width=1 << 20)
    indented = "".join(f"  {line}" if line.strip() else line for line in body.splitlines(keepends=True))
    return {MANIFEST: _HEAD + _MANIFEST_HEAD + indented, IN_CHART: _HEAD + body}


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")
