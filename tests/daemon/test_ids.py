"""Ids of records with a real daemon: where they are, `cpcmon audit-list`, `audit-check` and `forget`."""

import csv
import json
import re
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.daemon.conftest import Site
from tests.daemon.process import Process, one, running, write_records

pytestmark = pytest.mark.slow

NAMES = [f"CANARY-{number:03}" for number in range(200)]
ODD = ["CANARY-rejected", "CANARY-unparsed", "CANARY-unknown", "CANARY-class", "CANARY-broken"]
PAGES = (
    "/metrics", "/", "/-/ready", "/model?name=density", "/rejects", "/configuration", "/api/v1/status",
    "/api/v1/history?model=density", "/api/v1/labels?model=density&segment=all", "/api/v1/rejects", "/api/v1/alerts", "/api/v1/configuration",
)  # fmt: skip


def configure(site: Site, audit: str) -> None:
    """Write a configuration with an audit and a source of labels."""
    site.configure(more=f"    {audit}")
    source = "sources:\n  - {name: truth, type: directory, path: labels, poll: 0.2s, carries: labels}\n"
    site.config.write_text(site.config.read_text("utf-8").replace("sources:\n", source), encoding="utf-8")
    (site.folder / "labels").mkdir(exist_ok=True)


def send(site: Site) -> None:
    """Write predictions: 200 with an id each, a repeated one, and rejected ones."""
    path = site.inbox / "a.jsonl"
    write_records(path, site.reference_vectors[:200], id=NAMES)
    write_records(path, site.reference_vectors[:1], id=[NAMES[0]])
    with path.open("a") as file:
        file.write(f'{{"probs": [7, 0, 0], "id": "{ODD[0]}"}}\n{{"probs": [1, 0, 0], "id": "{ODD[1]}"\n')


def label(site: Site, names: list[str]) -> None:
    """Write labels: of these, of an unknown id, and rejected ones."""
    with (site.folder / "labels" / "a.jsonl").open("a") as file:
        for name in [*names, ODD[2]]:
            file.write(json.dumps({"id": name, "label": 0}) + "\n")
        file.write(f'{{"id": "{ODD[3]}", "label": "{ODD[3]}"}}\n{{"id": "{ODD[4]}", "lab\n')


def wait_for(process: Process, records: int, labels: int) -> None:
    """Wait for so many accepted records and labels, and the rejected ones that come with them."""
    process.wait_until(
        lambda page: (
            one(page, "cpcmon_records_total", source="results") == records
            and (one(page, "cpcmon_labels_total", source="truth") or 0.0) == labels
        ),
        f"{records} records and {labels} labels",
    )
    counts = {one["source"]: one["records"] for one in json.loads(process.ask("/api/v1/status")[1])["sources"]}
    assert counts == {"results": records, "truth": labels}


def in_files(site: Site) -> dict[str, set[str]]:
    """Return the ids that are in each file of the state."""
    found = {}
    for file in (site.folder / "state").iterdir():
        content = file.read_bytes()
        assert "CANARY".encode("utf-16-le") not in content
        found[file.name] = {one.decode() for one in re.findall(rb"CANARY-(?:[0-9]{3}|[a-z]*)", content)}
    return {file: ids for file, ids in found.items() if ids}


def shown(process: Process) -> str:
    """Return everything that a client or a log reader sees."""
    return "".join(process.ask(path)[1] for path in PAGES) + process.log


def listed(ran: Ran) -> list[str]:
    """Return the ids of `cpcmon audit-list`."""
    assert (ran.code, ran.err) == (0, "")
    return [row["id"] for row in csv.DictReader(ran.out.splitlines())]


def typed_ids(folder: Path, names: list[str]) -> Path:
    """Write a file of ids."""
    (folder / "ids.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    return folder / "ids.txt"


@pytest.mark.parametrize("keep_ids", ["true", "false"])
def test_d1_ids_are_in_one_place_only_and_go(site: Site, cpcmon: Callable[..., Ran], keep_ids: str) -> None:
    """Of audited records without a label, in the database, with `keep_ids`. No others: repeated, rejected, unknown, labelled."""
    configure(site, f"audit: {{share: 0.5, keep_ids: {keep_ids}}}")
    config, ids = ("--config.file", site.config), typed_ids(site.folder, [*NAMES, *ODD])
    early = cpcmon("audit-check", "density", *config, "--ids", ids)
    assert early.code == 2
    assert "the daemon makes this key at its first start" in early.err
    send(site)
    with running(site.config, "--log.level", "debug", "--web.enable-lifecycle") as process:
        wait_for(process, 200, 0)
        check = cpcmon("audit-check", "density", *config, "--ids", ids)
        sample = [name for name in check.out.splitlines() if name in NAMES]
        assert 60 < len(sample) < 140
        assert check.err.startswith(f"{len(check.out.splitlines())} of 205 ids are audited (")
        kept = sample if keep_ids == "true" else []
        ran = cpcmon("audit-list", "density", *config)
        if kept:
            assert sorted(listed(ran)) == kept
            assert listed(cpcmon("audit-list", "density", *config, "--since", "2100-01-01T00:00Z")) == []
        else:
            assert ran.code == 2
            assert "keep_ids: expected true, found false: no id is stored; use `cpcmon audit-check`" in ran.err
        found = in_files(site)
        assert found.keys() <= {"state.db", "state.db-wal"}
        assert set().union(*found.values()) == set(kept)
        label(site, sample[:20])
        wait_for(process, 200, 21)
        process.wait_until(lambda page: one(page, "cpcmon_records_rejected_total", reason="unknown_label") == 1, "all")
        assert in_files(site) == ({"state.db": set(kept[20:])} if kept else {})

        forget = ("forget", *config, "--ids", typed_ids(site.folder, [*sample[10:30], *ODD]), "--url", process.url)
        done = cpcmon(*forget)
        assert (done.code, done.err) == (0, "")
        gone = f"{10 if kept else 0} ids kept for an audit"
        assert done.out == f"21 of 25 ids found and deleted: 20 kept predictions, 11 labels, {gone}\n"
        assert in_files(site) == ({"state.db": set(kept[30:])} if kept else {})
        assert cpcmon(*forget, "--model", "other").code == 2
        assert "CANARY" not in shown(process)
        process.kill()
    assert cpcmon(*forget).out.startswith("0 of 25 ids found")
    write_records(site.inbox / "a.jsonl", site.reference_vectors[:2], id=[sample[9], sample[10]])
    with running(site.config) as process:
        wait_for(process, 201, 21)
        assert process.stop() == 0
    kept = [*kept[30:], sample[10]] if kept else []
    assert in_files(site) == ({"state.db": set(kept)} if kept else {})
    done = cpcmon("forget", *config, "--ids", typed_ids(site.folder, [*NAMES, *ODD]))
    assert done.out.startswith("181 of 205 ids found and deleted: 181 kept predictions, 10 labels, ")
    assert in_files(site) == {}
    assert "CANARY" not in process.log
    with closing(sqlite3.connect(site.folder / "state" / "state.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_ids_are_read_from_lines_csv_and_standard_input(
    site: Site, cpcmon: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And a model without an audit, an unknown one, and a file that is no text are refused."""
    site.configure(more="    audit: {share: 1}")
    config = ("--config.file", site.config)
    with running(site.config) as process:
        assert process.url
        assert process.stop() == 0
    ids = site.folder / "ids"
    for content, found in (
        ("a b\r\n\n ü \n", "a b\nü\n"),
        ('time,id\n1,"a,b"\n2,\n3,c\n', "a,b\nc\n"),
        ("id\n7\n", "7\n"),
        ("", ""),
    ):
        ids.write_bytes(content.encode("utf-8-sig"))
        assert cpcmon("audit-check", "density", *config, "--ids", ids).out == found
        monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(content.encode())))
        assert cpcmon("audit-check", "density", *config, "--ids", "-").out == found
    ids.write_text("study,time\na,1\n")
    assert "no column is named id" in cpcmon("audit-check", "density", *config, "--ids", ids).err
    ids.write_bytes(b"caf\xe9\n")
    for words, said in (
        (("audit-check", "density", *config, "--ids", ids), "--ids: expected text in UTF-8, found another encoding"),
        (("audit-check", "other", *config, "--ids", ids), "MODEL: expected one of density, found 'other'"),
        (("forget", *config, "--ids", site.folder / "none"), "No such file"),
        (("audit-list", "density", *config, "--since", "soon"), "keep_ids: expected true, found false"),
    ):
        ran = cpcmon(*words)
        assert ran.code in {1, 2}
        assert said in ran.err
    site.configure(more="    audit: {share: 1, keep_ids: true}")
    refused = cpcmon("audit-list", "density", *config, "--since", "soon").err
    assert "--since: expected a duration such as 7d, or a time such as" in refused
    site.configure()
    for command in ("audit-list", "audit-check"):
        ran = cpcmon(command, "density", *config, *(("--ids", ids) if command == "audit-check" else ()))
        assert ran.code == 2
        assert "audit: expected a share such as {share: 0.02}, found no audit" in ran.err
