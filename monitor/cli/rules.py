"""`cpcmon rules`: write the Prometheus rule file for a configuration."""

import argparse
import re
import sys

from monitor.cli.inputs import check_output, write_atomically
from monitor.cli.parser import as_path
from monitor.cli.run import add_config_file
from monitor.config.reading import read_config
from monitor.errors import Problem, UsageError
from monitor.evaluation.crontab import shortest_gap_seconds
from monitor.rules.rule_file import DEFAULT_JOB, rule_file


def register(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.description = (
        "Write the Prometheus rule file for the alerts of a configuration, with alerts for cpcmon itself: down, stuck,"
        " or without estimates. Run it again when models or alerts change."
    )
    parser.epilog = "example: cpcmon rules --config.file config.yaml --output cpcmon.rules.yml"
    add_config_file(parser)
    parser.add_argument("--output", type=as_path, metavar="FILE", help="output file (default: standard output)")
    parser.add_argument(
        "--job",
        default=DEFAULT_JOB,
        metavar="REGEX",
        help=f"the Prometheus scrape job of cpcmon (default: {DEFAULT_JOB})",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the rules."""
    try:
        re.compile(options.job)
    except re.error as error:
        raise UsageError(Problem("--job", "a regular expression", f"{options.job!r} ({error})")) from error
    if options.output is not None:
        check_output("--output", options.output, options.config)
    config = read_config(options.config, shortest_gap_seconds)
    if not config.runbooks.startswith(("https://", "http://")):
        print(
            f"{options.config}: runbooks: expected a URL such as https://wiki.example/cpcmon/,"
            f" found {config.runbooks!r}: runbook links in notifications will not open",
            file=sys.stderr,
        )
    text = rule_file(config, options.job)
    if options.output is None:
        sys.stdout.write(text)
    else:
        # Prometheus does not start with a partial rule file.
        write_atomically(options.output, text.encode())
    return 0
