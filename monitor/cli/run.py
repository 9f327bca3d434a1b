"""`cpcmon run`: the daemon."""

import argparse
import logging
import sys

from monitor.cli.parser import as_path
from monitor.daemon.logs import LEVELS, log_unhandled, set_up
from monitor.errors import CpcmonError

log = logging.getLogger("cpcmon")

DEFAULT_ADDRESS = "127.0.0.1:9877"


def register(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.description = (
        "Run the daemon: read the sources, evaluate windows and alerts on schedule, and serve /metrics and web pages."
        " SIGHUP reloads the configuration, SIGTERM or Ctrl-C stops. Logs go to standard error."
    )
    parser.epilog = """\
examples:
  cpcmon run --config.file config.yaml
  cpcmon run --config.file config.yaml --web.listen-address 0.0.0.0:9877 --log.format json
"""
    add_config_file(parser)
    parser.add_argument(
        "--config.check",
        dest="check",
        action="store_true",
        help="check the configuration, and the web configuration if given, then exit",
    )
    parser.add_argument(
        "--config.watch",
        dest="watch",
        action="store_true",
        help="reload when the configuration or one of its references changes on disk",
    )
    web = parser.add_argument_group("web")
    web.add_argument(
        "--web.listen-address", dest="address", default=DEFAULT_ADDRESS, metavar="HOST:PORT",
        help=f"address to listen on (default: {DEFAULT_ADDRESS})",
    )  # fmt: skip
    web.add_argument(
        "--web.config.file", dest="web_config", type=as_path, metavar="FILE",
        help="TLS, client certificates and passwords, in the exporter toolkit's format",
    )  # fmt: skip
    web.add_argument(
        "--web.probe-address", dest="probe_address", metavar="HOST:PORT",
        help="a second address, without TLS and passwords, that serves only the status codes of /-/healthy and /-/ready",
    )  # fmt: skip
    web.add_argument(
        "--web.enable-lifecycle", dest="lifecycle", action="store_true", help="enable POST /-/reload and /-/command"
    )
    logs = parser.add_argument_group("logs")
    logs.add_argument("--log.level", dest="level", choices=list(LEVELS), default="info", help="lowest level to log")
    logs.add_argument("--log.format", dest="format", choices=["logfmt", "json"], default="logfmt", help="log format")
    parser.set_defaults(run=run)


def add_config_file(parser: argparse.ArgumentParser) -> None:
    """Add --config.file."""
    parser.add_argument(
        "--config.file", dest="config", type=as_path, required=True, metavar="FILE", help="the configuration"
    )


def run(options: argparse.Namespace) -> int:
    """Run until stopped."""
    # Imported late: `completion`, `help` and `demo` need the options only, and Kafka's client is slow to import.
    from monitor.daemon.daemon import Daemon, RunOptions, read  # noqa: PLC0415
    from monitor.state.store import State  # noqa: PLC0415
    from monitor.web.server.web_config import WebSettings  # noqa: PLC0415

    if options.check:
        config, _ = read(options.config)
        State.check(config.storage.path, allow_network=config.storage.allow_network)
        print(f"{options.config}: valid")
        if options.web_config is not None:
            for remark in WebSettings(options.web_config).remarks:
                print(f"remark: {remark}")
            print(f"{options.web_config}: valid")
        return 0
    set_up(options.level, options.format, sys.stderr)
    log_unhandled()
    logging.captureWarnings(capture=True)
    try:
        Daemon(
            RunOptions(
                options.config,
                options.address,
                options.web_config,
                options.lifecycle,
                options.watch,
                options.probe_address,
            )
        ).run()
    except CpcmonError as error:
        # One line per problem of a configuration.
        for sentence in str(error).splitlines():
            log.error("%s", sentence)  # noqa: TRY400 - raised on purpose: no traceback
        return error.exit_code
    except Exception as error:
        log.exception("internal error: %s", type(error).__name__)
        return 1
    return 0
