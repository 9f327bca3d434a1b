"""`python -m monitor` is the same as `cpcmon`."""

import sys

from monitor.cli import main

sys.exit(main())
