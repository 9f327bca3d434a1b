"""The commands of docs/deployment.md."""

import re

from tests.conftest import ROOT

_PAGE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
_PART = _PAGE.partition("\n## systemd\n")[2].partition("\n## ")[0]


def steps() -> dict[str, list[str]]:
    """Return the shell blocks of each step, in order, by its heading."""
    found = {}
    for section in _PART.split("\n### ")[1:]:
        heading, _, text = section.partition("\n")
        if blocks := re.findall(r"^```sh\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
            found[re.sub(r"^\d+\. ", "", heading)] = blocks
    return found
