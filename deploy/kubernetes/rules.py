"""Write the rules of deploy/prometheus as the PrometheusRule of the manifests, and into the chart.

python deploy/kubernetes/rules.py, whenever they have changed; a test tells when that was forgotten.
"""  # noqa: INP001 - a script, no package

from pathlib import Path

import yaml

DEPLOY = Path(__file__).resolve().parents[1]
RULES = DEPLOY / "prometheus" / "cpcmon.rules.yml"
MANIFEST = DEPLOY / "kubernetes" / "base" / "prometheusrule.yaml"
IN_CHART = DEPLOY / "helm" / "cpcmon" / "files" / "rules.yaml"
_HEAD = "# Made by deploy/kubernetes/rules.py from the rules in deploy/prometheus: change those, and run it.\n"
_MANIFEST_HEAD = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: cpcmon
spec:
"""


def texts() -> dict[Path, str]:
    """Return what the files made from the rules should hold."""
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    body = yaml.safe_dump(rules, sort_keys=False, allow_unicode=True, width=1 << 20)
    indented = "".join(f"  {line}" if line.strip() else line for line in body.splitlines(keepends=True))
    return {MANIFEST: _HEAD + _MANIFEST_HEAD + indented, IN_CHART: _HEAD + body}


if __name__ == "__main__":
    for path, text in texts().items():
        path.write_text(text, encoding="utf-8")
