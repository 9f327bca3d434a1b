"""`cpcmon audit-list`, `audit-check` and `forget`: ids of records, which are printed but never logged or sent."""

import argparse
import csv
import json
import sys
import time
from contextlib import closing
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import numpy as np

from monitor.cli.baseline import DaemonClient, add_daemon
from monitor.cli.parser import as_path
from monitor.cli.run import add_config_file
from monitor.config.config import AuditOptions, Config, ModelConfig
from monitor.config.reading import read_config
from monitor.core.labels.audit import audited
from monitor.core.recent_ids import Hashes
from monitor.errors import Problem, StateInUse, StateRefused, UnknownName, UsageError
from monitor.evaluation.crontab import shortest_gap_seconds
from monitor.records.id_hash import hash_ids
from monitor.settings.kinds import seconds
from monitor.state.commit_plan import Forgotten, is_of
from monitor.state.database import NAME, read_audit_ids_of
from monitor.state.state_folder import read_hash_key
from monitor.state.store import State

_AT_ONCE = 3_000
"""Hashes in a command to a daemon, which takes 64 KiB."""


def register_audit_list(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `cpcmon audit-list`."""
    parser.description = (
        "List the audited records of a model that wait for their labels, oldest first, as CSV with id and time. The model"
        " needs audit.keep_ids: true. Works while the daemon runs; run it as the daemon's user."
    )
    parser.epilog = """\
examples:
  cpcmon audit-list density --config.file config.yaml
  cpcmon audit-list density --config.file config.yaml --since 7d
"""
    parser.add_argument("model", metavar="MODEL", help="the name of the model")
    add_config_file(parser)
    parser.add_argument(
        "--since", metavar="WHEN", help="only later records: a duration such as 7d, or a time such as 2026-05-01T00:00Z"
    )
    parser.set_defaults(run=audit_list)


def audit_list(options: argparse.Namespace) -> int:
    """Print the ids that wait for their labels."""
    config = read_config(options.config, shortest_gap_seconds)
    model = _model(config, options.model)
    if not _audit(model).keep_ids:
        raise UsageError(
            Problem(
                f"models[{model.name}].audit.keep_ids",
                "true",
                "false: no id is stored; use `cpcmon audit-check` on a list of your own",
            )
        )
    now, folder = time.time(), config.storage.path
    since = -np.inf if options.since is None else _since(options.since, now)
    if model.labels is not None:
        since = max(since, now - model.labels.horizon_seconds)
    if not (folder / NAME).exists():
        raise UsageError(Problem(str(folder), "the state directory of a daemon", f"one without {NAME}"))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(("id", "time"))
    for one in read_audit_ids_of(folder):
        if is_of(model.name, one.model) and one.at >= since:
            writer.writerow((_shown(one.id), f"{datetime.fromtimestamp(one.at, UTC):%Y-%m-%dT%H:%M:%SZ}"))
    return 0


def register_audit_check(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `cpcmon audit-check`."""
    parser.description = (
        "Print those of some ids that are audited, in their order. Nothing is looked up: the keyed hash of an id decides, so it"
        " works for any id. Needs hash.key in the state directory; run it as the daemon's user."
    )
    parser.epilog = """\
examples:
  cpcmon audit-check density --config.file config.yaml --ids ids.txt
  cpcmon audit-check density --config.file config.yaml --ids -
"""
    parser.add_argument("model", metavar="MODEL", help="the name of the model")
    add_config_file(parser)
    _add_ids(parser)
    parser.set_defaults(run=audit_check)


def audit_check(options: argparse.Namespace) -> int:
    """Print the ids that are audited."""
    config = read_config(options.config, shortest_gap_seconds)
    share = _audit(_model(config, options.model)).share
    key = _key(config)
    ids = _ids(options.ids)
    chosen = np.flatnonzero(audited(hash_ids(ids, key), share)).tolist()
    for row in chosen:
        print(_shown(ids[row]))
    percent = f" ({len(chosen) / len(ids):.1%})" if ids else ""
    print(f"{len(chosen):,} of {len(ids):,} ids are audited{percent}", file=sys.stderr)
    return 0


def register_forget(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `cpcmon forget`."""
    parser.description = (
        "Delete what is stored of some ids: the hashes by which repeated records are recognised, the ids of predictions and"
        " labels, and ids kept for an audit. Vectors in windows have no id and stay. Works with a running daemon, to which only"
        " keyed hashes are sent, and with a stopped one; run it as the daemon's user."
    )
    parser.epilog = """\
examples:
  cpcmon forget --config.file config.yaml --ids ids.txt
  cpcmon forget --config.file config.yaml --ids ids.csv --model density --url http://localhost:9877
"""
    add_config_file(parser)
    _add_ids(parser)
    parser.add_argument("--model", metavar="MODEL", help="only of this model (default: of all)")
    add_daemon(parser, "It must have been started with `cpcmon run --web.enable-lifecycle`.")
    parser.set_defaults(run=forget)


def forget(options: argparse.Namespace) -> int:
    """Delete what is stored of some ids."""
    config = read_config(options.config, shortest_gap_seconds)
    if options.model is not None:
        _model(config, options.model)
    key = _key(config)
    hashes = np.unique(hash_ids(_ids(options.ids), key))
    try:
        state = State.open(config.storage.path, allow_network=config.storage.allow_network)
    except StateInUse:
        found = _told(
            DaemonClient(options, "the running cpcmon that uses the state directory, or its address in --url"),
            hashes,
            options.model,
        )
    else:
        with closing(state):
            found = state.forget(hashes, options.model)
    print(
        f"{found.found:,} of {len(hashes):,} ids found and deleted: {found.predictions:,} kept predictions,"
        f" {found.labels:,} labels, {found.audit_ids:,} ids kept for an audit"
    )
    return 0


def _told(daemon: DaemonClient, hashes: Hashes, model: str | None) -> Forgotten:
    """Tell a running daemon to forget; return what it found."""
    found = np.zeros(len(Forgotten._fields), dtype=np.int64)
    for start in range(0, len(hashes), _AT_ONCE):
        some = hashes[start : start + _AT_ONCE].astype("<u8").tobytes().hex()
        found += list(json.loads(daemon.command({"command": "forget", "hashes": some, "model": model})).values())
    return Forgotten(*found.tolist())


def _model(config: Config, name: str) -> ModelConfig:
    models = {model.name: model for model in config.models}
    if name not in models:
        raise UnknownName(Problem("MODEL", f"one of {', '.join(models)}", repr(name)))
    return models[name]


def _audit(model: ModelConfig) -> AuditOptions:
    if model.audit is None:
        raise UsageError(Problem(f"models[{model.name}].audit", "a share such as {share: 0.02}", "no audit"))
    return model.audit


def _key(config: Config) -> bytes:
    """Return the hash key of a state directory."""
    try:
        return read_hash_key(config.storage.path)
    except StateRefused as error:
        raise StateRefused(f"{error}; the daemon makes this key at its first start") from error


def _since(text: str, now: float) -> float:
    """Return the time that a duration or a time names."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        try:
            return now - seconds(text, "--since")
        except UsageError:
            wanted = "a duration such as 7d, or a time such as 2026-05-01T00:00Z"
            raise UsageError(Problem("--since", wanted, repr(text))) from None
    return moment.astimezone().timestamp()


def _add_ids(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--ids",
        type=as_path,
        required=True,
        metavar="FILE",
        help="the ids: one per line, or CSV with a column `id`; - for standard input",
    )


def _ids(file: Path) -> list[str]:
    """Return the ids in a file."""
    content = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(Problem("--ids", "text in UTF-8", f"another encoding, at byte {error.start:,}")) from None
    rows = csv.reader(StringIO(text, newline=""))
    if "id" in (header := next(rows, [])):
        place = header.index("id")
        return [row[place] for row in rows if len(row) > place and row[place]]
    if len(header) > 1:
        # An id may have a comma. But nobody should believe that the ids of another column were looked for.
        print("warning: --ids: no column is named id, so each line is one id, with its commas", file=sys.stderr)
    return [line.strip() for line in text.split("\n") if line.strip()]


def _shown(id_: str) -> str:
    """Return an id as it is, but safe to print on a terminal: producers choose it."""
    if not sys.stdout.isatty():
        return id_.encode("utf-8", "backslashreplace").decode()
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in id_)
