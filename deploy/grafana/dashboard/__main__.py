"""Write the dashboards: `python -m deploy.grafana.dashboard`."""

import argparse
import sys
from pathlib import Path

from deploy.grafana.dashboard.assembly import FOLDER, texts


def main() -> int:
    """Write the files."""
    parser = argparse.ArgumentParser(prog="python -m deploy.grafana.dashboard", description=__doc__)
    parser.add_argument("--output", type=Path, default=FOLDER, help="where to write them (default: deploy)")
    options = parser.parse_args()
    for name, text in texts().items():
        file = options.output / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
