"""Write the dashboard: `python -m deploy.grafana.dashboard`."""

import argparse
import sys
from pathlib import Path

from deploy.grafana.dashboard.assembly import FILE, RUNBOOKS, text


def main() -> int:
    """Write the file."""
    parser = argparse.ArgumentParser(prog="python -m deploy.grafana.dashboard", description=__doc__)
    parser.add_argument("--runbooks", default=RUNBOOKS, help="address that file names of runbooks are added to")
    parser.add_argument("--output", type=Path, default=FILE, help="where to write it")
    options = parser.parse_args()
    options.output.write_text(text(options.runbooks), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
