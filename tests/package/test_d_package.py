"""The package runs no input as code, and its dependencies are locked."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import requires, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT

FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "marshal", "shelve", "dbm", "dill", "cloudpickle", "joblib"}
FORBIDDEN_NAMES = {
    *("eval", "exec", "compile", "__import__", "os.system", "os.popen", "pty.spawn", "tempfile.mktemp"),
    *("yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.unsafe_load_all", "yaml.full_load", "yaml.full_load_all"),
    *("yaml.Loader", "yaml.CLoader", "yaml.UnsafeLoader", "yaml.CUnsafeLoader", "yaml.FullLoader", "yaml.CFullLoader"),
    *("subprocess.getoutput", "subprocess.getstatusoutput", "ssl._create_unverified_context", "ssl.wrap_socket"),
}
LOCK = ROOT / "requirements.lock"


def offences(source: str) -> list[str]:
    """Return the calls of a module that could run its input, or skip verification."""
    tree = ast.parse(source)
    names = _imported(tree)
    return [f"line {line}: {what}" for line, what in _offences(tree, names)]


def _imported(tree: ast.Module) -> dict[str, str]:
    """Return the full names of imported names, so that an alias does not hide one."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                names[one.asname or one.name.partition(".")[0]] = one.name if one.asname else one.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
    return names


def _offences(tree: ast.Module, names: dict[str, str]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from ((node.lineno, one.name) for one in node.names if _is_forbidden(one.name))
            case ast.ImportFrom(module=str(module)) if _is_forbidden(module):
                yield node.lineno, module
            case ast.Name() | ast.Attribute() if (name := _dotted(node, names)) in FORBIDDEN_NAMES:
                yield node.lineno, name
            case ast.Call():
                yield from ((node.lineno, what) for what in _bad_words(node, _dotted(node.func, names)))
            case ast.Assign(targets=[ast.Attribute(attr="check_hostname")], value=ast.Constant(value=False)):
                yield node.lineno, "check_hostname = False"


def _is_forbidden(module: str) -> bool:
    return module.partition(".")[0] in FORBIDDEN_MODULES


def _dotted(node: ast.expr, names: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value, names)}.{node.attr}"
    return names.get(node.id, node.id) if isinstance(node, ast.Name) else "?"


def _bad_words(call: ast.Call, function: str) -> Iterator[str]:
    words = {word.arg: word.value for word in call.keywords}
    for name in ("allow_pickle", "shell"):
        value = words.get(name)
        if value is not None and not (isinstance(value, ast.Constant) and value.value is False):
            yield f"{name}={ast.unparse(value)}"
    match words.get("verify"):
        case ast.Constant(value=False):
            yield "verify=False"
    if function == "numpy.load" and "allow_pickle" not in words:
        yield "numpy.load without allow_pickle=False"


@pytest.mark.parametrize(
    "source",
    [
        *("import pickle", "import pickle as innocent", "from pickle import loads", "import marshal", "import shelve"),
        *("eval(text)", "exec(text)", "compile(text, '', 'exec')", "run = eval", "__import__(name)"),
        *(
            "import yaml\nyaml.load(text)",
            "import yaml as y\ny.unsafe_load(text)",
            "from yaml import full_load as f\nf(t)",
        ),
        *("from yaml import load\nload(text)", "import yaml\nclass Mine(yaml.UnsafeLoader): pass"),
        *(
            "import subprocess\nsubprocess.run(text, shell=True)",
            "import os\nos.system(text)",
            "from os import popen\npopen(t)",
        ),
        *("import numpy as np\nnp.load(file)", "import numpy\nnumpy.load(file, allow_pickle=True)"),
        *("from numpy import load\nload(file)", "import numpy as np\nnp.load(file, allow_pickle=trusted)"),
        *("numpy.lib.format.read_array(file, allow_pickle=True)", "get(url, verify=False)"),
        *("import ssl\nssl._create_unverified_context()", "context.check_hostname = False"),
    ],
)
def test_d19_the_scan_finds_dangerous_calls(source: str) -> None:
    """Also with an alias."""
    assert offences(source)


@pytest.mark.parametrize(
    "source",
    [
        *("import re\nre.compile(text)", "import yaml\nyaml.compose(text, Loader=yaml.SafeLoader)", "model.eval()"),
        *("import numpy as np\nnp.load(file, allow_pickle=False)", "import json\njson.load(file)"),
    ],
)
def test_d19_the_scan_ignores_similar_names(source: str) -> None:
    assert offences(source) == []


def test_d19_the_package_has_no_dangerous_calls() -> None:
    """No pickle, eval, yaml.load, shell or disabled verification."""
    files = sorted((ROOT / "monitor").rglob("*.py"))
    assert len(files) > 100
    found = {str(file.relative_to(ROOT)): offences(file.read_text(encoding="utf-8")) for file in files}
    assert {name: what for name, what in found.items() if what} == {}


def locked() -> dict[str, tuple[str, list[str]]]:
    """Return the version and the hashes of each package in the lock."""
    found = {}
    for entry in re.split(r"\n(?=[a-z0-9])", LOCK.read_text(encoding="utf-8"))[1:]:
        pinned = re.match(r"([a-z0-9-]+)==(\S+) \\\n", entry)
        assert pinned, f"expected a package with one version and hashes, found {entry.splitlines()[0]!r}"
        found[pinned.group(1)] = (pinned.group(2), re.findall(r"--hash=sha256:([0-9a-f]{64})\b", entry))
    return found


def needed() -> set[str]:
    """Return every package needed at run time, direct and indirect, from the metadata of the installed ones."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    waiting = [(Requirement(text), frozenset({""})) for text in project["dependencies"]]
    found = set[tuple[str, frozenset[str]]]()
    while waiting:
        one, extras = waiting.pop()
        # Evaluated on Linux: dependencies of other systems are not installed.
        if one.marker is not None and not any(one.marker.evaluate({"extra": extra}) for extra in extras):
            continue
        asked = canonicalize_name(one.name), frozenset({"", *one.extras})
        if asked not in found:
            found.add(asked)
            waiting += [(Requirement(text), asked[1]) for text in requires(one.name) or []]
    return {name for name, _ in found}


def test_d20_every_dependency_is_locked_with_hashes() -> None:
    """And nothing else. `make lock` updates the file."""
    lock = locked()
    assert set(lock) == needed()
    assert all(hashes for _, hashes in lock.values())
    assert len(lock) > 5


def test_d20_the_locked_versions_are_installed() -> None:
    assert {name: one[0] for name, one in locked().items()} == {name: version(name) for name in locked()}


def test_d20_the_lock_names_no_package_index() -> None:
    """Each site has its own, and URLs may contain tokens."""
    text = LOCK.read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"^--(?!hash)", text, re.MULTILINE)


def test_d20_the_bill_of_materials_lists_every_locked_package(tmp_path: Path) -> None:
    """By name, version and package URL, with their dependencies."""
    ran = subprocess.run(
        [sys.executable, str(ROOT / "deploy" / "sbom.py"), str(LOCK)],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
    )
    bill = json.loads(ran.stdout)
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    assert {one["name"]: one["version"] for one in bill["components"]} == {
        name: one[0] for name, one in locked().items()
    }
    assert all(one["purl"] == f"pkg:pypi/{one['name']}@{one['version']}" for one in bill["components"])
    references = {one["bom-ref"] for one in [bill["metadata"]["component"], *bill["components"]]}
    assert {one["ref"] for one in bill["dependencies"]} == references
    # Every package is a dependency of another one.
    reached = {reference for one in bill["dependencies"] for reference in one["dependsOn"]}
    assert reached == references - {bill["metadata"]["component"]["bom-ref"]}
