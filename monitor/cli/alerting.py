"""`cpcmon rules`: write the Prometheus rule file for a configuration. `cpcmon notify`: try its webhook."""

import argparse
import re
import sys
import time
from urllib.parse import urlsplit

from monitor.cli.inputs import check_output, write_atomically
from monitor.cli.parser import as_path
from monitor.cli.run import add_config_file
from monitor.config.reading import read_config
from monitor.errors import Problem, UsageError
from monitor.evaluation.crontab import shortest_gap_seconds
from monitor.rules.rule_file import DEFAULT_JOB, rule_file


def register_rules(parser: argparse.ArgumentParser) -> None:
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
    parser.set_defaults(run=_write_rules)


def register_notify(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.description = (
        "Send two test messages through the webhook of a configuration, one that fires and one that resolves, both with"
        ' "test": true, and print them with the answers. A running daemon is not needed, and does not notice.'
    )
    parser.epilog = "example: cpcmon notify --test --config.file config.yaml"
    add_config_file(parser)
    parser.add_argument("--test", action="store_true", required=True, help="send test messages; nothing else is sent")
    parser.set_defaults(run=_notify)


def _notify(options: argparse.Namespace) -> int:
    """Send the test messages, each once."""
    # Imported late: the options alone need none of it.
    from monitor.sinks.http_sender import HttpSender, Outcome  # noqa: PLC0415
    from monitor.sinks.notifications import trial_bodies  # noqa: PLC0415

    config = read_config(options.config, shortest_gap_seconds)
    if config.webhook is None:
        raise UsageError(Problem("notify.webhook", "a webhook in the configuration", "none"))
    url, sender = urlsplit(config.webhook.url), HttpSender(config.webhook)
    # The path, the query and the user may be secrets.
    print(
        f"to {url.scheme}://{url.hostname}{f':{url.port}' if url.port else ''}, timeout {config.webhook.timeout_seconds:g} s"
    )
    for body in trial_bodies(config.models[0].name, config.links, time.time()):
        print(body.decode("ascii"))
        answer = sender.send(body)
        print(f"{'delivered' if answer.outcome is Outcome.SENT else 'not delivered'}: {answer.reason}")
        if answer.outcome is not Outcome.SENT:
            return 1
    return 0


def _write_rules(options: argparse.Namespace) -> int:
    """Write the rules."""
    try:
        re.compile(options.job)
    except re.error as error:
        raise UsageError(Problem("--job", "a regular expression", f"{options.job!r} ({error})")) from error
    if options.output is not None:
        check_output("--output", options.output, options.config)
    config = read_config(options.config, shortest_gap_seconds)
    if config.links.runbooks is None:
        print(f"{options.config}: links.runbooks: not set: notifications have no runbook links", file=sys.stderr)
    text = rule_file(config, options.job)
    if options.output is None:
        sys.stdout.write(text)
    else:
        # Prometheus does not start with a partial rule file.
        write_atomically(options.output, text.encode())
    return 0
