"""The settings that the code declares, to be compared with the documentation."""

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from monitor.config.reading import read_document
from monitor.settings.section import DeclaredSetting
from monitor.settings.setting_files import open_document
from monitor.settings.yaml_text import Node, Scalar, YamlList, YamlMap, compose
from monitor.sources.registry import SOURCE_TYPES
from tests.conftest import ROOT

EXAMPLE = ROOT / "config.example.yaml"

# Twice, because a setting of tls has another default where something stands there; alerts that the example does not have.
_KAFKA = """\
storage: {path: state}
sources:
  - {name: a, type: kafka, brokers: ["kafka:9092"], group: cpcmon, topics: [predictions]}
  - {name: b, type: kafka, brokers: ["kafka:9092"], group: cpcmon, topics: [others], tls: {check_hostname: true}}
models:
  - name: density
    alerts: [{name: a, above: 0.99}, {name: b, type: disagreement}]
"""


def declared_by_path(file: Path = EXAMPLE) -> dict[str, DeclaredSetting]:
    """Return every setting that was declared for while a file was read, by its path with places."""
    document = open_document(file)
    read_document(document)
    document.finish()
    return document.findings.declared


def declared() -> dict[str, list[DeclaredSetting]]:
    """Return every setting that the code reads, by its path without places: `models[].window.records`.

    What only one type of source has, or has otherwise than another, is called `sources[kafka].pattern`.
    """
    of_types = {"directory": without_places_in(declared_by_path()), "kafka": without_places_in(_declared_of_kafka())}
    assert of_types.keys() == SOURCE_TYPES.keys()
    found: dict[str, list[DeclaredSetting]] = {}
    for type_, settings in of_types.items():
        others = [one for other, one in of_types.items() if other != type_]
        for path, some in settings.items():
            shared = all(path in other and _alike(some, other[path]) for other in others)
            name = path if shared or not path.startswith("sources[].") else path.replace("[]", f"[{type_}]", 1)
            found.setdefault(name, []).extend(some)
    return found


def _declared_of_kafka() -> dict[str, DeclaredSetting]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "config.yaml"
        file.write_text(_KAFKA, encoding="utf-8")
        return declared_by_path(file)


def without_places_in(settings: dict[str, DeclaredSetting]) -> dict[str, list[DeclaredSetting]]:
    """Gather settings that speak of items of the same list."""
    found: dict[str, list[DeclaredSetting]] = {}
    for path, one in settings.items():
        found.setdefault(without_places(path), []).append(one)
    return found


def _alike(some: list[DeclaredSetting], others: list[DeclaredSetting]) -> bool:
    return {(one.kind.type_name, one.default_text()) for one in some} == {
        (one.kind.type_name, one.default_text()) for one in others
    }


def without_places(path: str) -> str:
    """Return a path that speaks of all items of a list."""
    return re.sub(r"\[\d+\]", "[]", path)


def everything_in_the_example() -> YamlMap:
    """Return the tree of the example with every setting that is left out in it taken in."""
    text = re.sub(r"^( *)#((- )?\w+:)", r"\1\2", EXAMPLE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    tree = compose(text.encode(), [])
    assert isinstance(tree, YamlMap)
    return tree


def places_in_the_example() -> Iterator[tuple[str, int, Node]]:
    """Yield each setting of the example under the name that `declared` has for it, with its line and its value."""
    known, tree = declared(), everything_in_the_example()
    sources = tree.entries["sources"].node
    assert isinstance(sources, YamlList)
    types = [_type_of(one) for one in sources.nodes]
    plain = {re.sub(r"^sources\[\w*\]", "sources[]", path) for path in known}
    for path, line, node in leaves(tree, plain):
        name = without_places(path)
        place = re.match(r"sources\[(\d+)\]", path)
        if place and name not in known:
            name = name.replace("[]", f"[{types[int(place.group(1))]}]", 1)
        yield name, line, node


def _type_of(source: Node) -> str:
    assert isinstance(source, YamlMap)
    node = source.entries["type"].node
    assert isinstance(node, Scalar)
    return node.text


def leaves(node: Node, settings: set[str], path: str = "") -> Iterator[tuple[str, int, Node]]:
    """Yield each setting of a tree with its path, its line and its value; what the code reads as one is one."""
    if isinstance(node, YamlMap):
        for key, entry in node.entries.items():
            below = f"{path}.{key}".removeprefix(".")
            if isinstance(entry.node, YamlMap) and without_places(below) not in settings:
                yield from leaves(entry.node, settings, below)
            elif isinstance(entry.node, YamlList) and without_places(below) not in settings:
                for place, item in enumerate(entry.node.nodes):
                    yield from leaves(item, settings, f"{below}[{place}]")
            else:
                yield below, entry.line, entry.node
