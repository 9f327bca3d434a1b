"""What the code reads, gathered from a reading of the example: to be compared with what people are told."""

import re
from collections.abc import Iterator
from pathlib import Path

from monitor.configuration.document import open_document
from monitor.configuration.reading import read_document
from monitor.configuration.section import Asked
from monitor.configuration.yaml_text import Items, Node, Settings, compose
from tests.conftest import ROOT

EXAMPLE = ROOT / "config.example.yaml"


def asked_by_path(file: Path = EXAMPLE) -> dict[str, Asked]:
    """Return every setting that was asked for while a file was read, by its path with places."""
    document = open_document(file)
    read_document(document)
    document.finish()
    return document.findings.asked


def asked() -> dict[str, list[Asked]]:
    """Return every setting that the code reads, by its path without places: `models[].window.records`."""
    found: dict[str, list[Asked]] = {}
    for path, one in asked_by_path().items():
        found.setdefault(without_places(path), []).append(one)
    return found


def without_places(path: str) -> str:
    """Return a path that speaks of all items of a list."""
    return re.sub(r"\[\d+\]", "[]", path)


def everything_in_the_example() -> Settings:
    """Return the tree of the example with every setting that is left out in it taken in."""
    text = re.sub(r"^( *)#(\w+:)", r"\1\2", EXAMPLE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    tree = compose(text.encode(), [])
    assert isinstance(tree, Settings)
    return tree


def leaves(node: Node, settings: set[str], path: str = "") -> Iterator[tuple[str, int, Node]]:
    """Yield each setting of a tree with its path, its line and its value; what the code reads as one is one."""
    if isinstance(node, Settings):
        for key, entry in node.entries.items():
            below = f"{path}.{key}".removeprefix(".")
            if isinstance(entry.node, Settings) and without_places(below) not in settings:
                yield from leaves(entry.node, settings, below)
            elif isinstance(entry.node, Items) and without_places(below) not in settings:
                for place, item in enumerate(entry.node.nodes):
                    yield from leaves(item, settings, f"{below}[{place}]")
            else:
                yield below, entry.line, entry.node
