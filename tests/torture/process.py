"""`cpcmon watch` with a detector of changes, which it does not have: the processes that are killed also count evidence."""

import sys
from collections.abc import Sequence
from functools import partial
from unittest.mock import patch

from monitor.cli import main, watch
from monitor.config.config import ModelConfig
from monitor.core.alerts import AlertRule, AlertType


def run(arguments: Sequence[str]) -> int:
    """Run a command."""
    with patch.object(watch, "ModelConfig", partial(ModelConfig, alerts=(AlertRule("drop", AlertType.CHANGE),))):
        return main(list(arguments))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
