"""The volumes of a pod, as folders on this machine."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.daemon.process import write_records, write_reference
from tests.kubernetes.rendering import Documents, configuration, container, one
from tests.web.certificates import Authority


class PodFolders:
    """A folder for each mount of the container, filled as in a cluster."""

    def __init__(self, documents: Documents, root: Path, name: str = "cpcmon-0") -> None:
        self.name = name
        self.container = container(documents)
        self._volumes: dict[str, Any] = {
            volume["name"]: volume for volume in one(documents, "StatefulSet")["spec"]["template"]["spec"]["volumes"]
        }
        self.mounts: dict[str, Path] = {}
        """Folders by mount path."""
        for mount in self.container["volumeMounts"]:
            folder = root / mount["name"]
            folder.mkdir(parents=True)
            self.mounts[mount["mountPath"]] = folder
        self._text = configuration(documents)
        self._fill()
        for file in root.rglob("*"):
            # As in a pod, where the group of the container can read everything.
            file.chmod(0o755 if file.is_dir() else 0o644)

    def named(self, volume: str) -> Path:
        """Return the folder of a volume."""
        (path,) = (folder for folder in self.mounts.values() if folder.name == volume)
        return path

    def here(self, text: str) -> str:
        """Return a text with mount paths replaced by folders."""
        # In one pass: a folder may itself be under /tmp.
        paths = "|".join(map(re.escape, sorted(self.mounts, key=len, reverse=True)))
        return re.sub(rf"({paths})(?=[/}} \n]|$)", lambda found: str(self.mounts[found[1]]), text)

    def paths_outside(self) -> list[str]:
        """Return the paths in the configuration that are not mounted."""
        paths = re.findall(r"(?<=[ :{])/[\w./-]+", re.sub(r"https://\S+", "", self._text))
        return [
            path for path in paths if not any(path.startswith(f"{mount}/") or path == mount for mount in self.mounts)
        ]

    def write_configuration_for_here(self) -> Path:
        """Write the configuration with local paths, and return its file."""
        file = self.named("config") / "config.yaml"
        file.write_text(self.here(self._text), encoding="utf-8")
        return file

    def _fill(self) -> None:
        (self.named("config") / "config.yaml").write_text(self._text, encoding="utf-8")
        _, vectors, _ = write_reference(self.named("references"))
        for item in self._volumes["pod"]["downwardAPI"]["items"]:
            assert item["fieldRef"]["fieldPath"] == "metadata.name"
            (self.named("pod") / item["path"]).write_text(self.name, encoding="utf-8")
        if "inbox" in self._volumes:
            write_records(self.named("inbox") / "results.jsonl", vectors[:300], site=["A", "B"])
        if not self._volumes["secrets"]["secret"]["optional"]:
            Authority(self.named("secrets"), "authority").pair.cert.rename(self.named("secrets") / "kafka-ca.pem")
            (self.named("secrets") / "kafka-password").write_text("secret", encoding="utf-8")


def arguments(words: Iterable[str]) -> dict[str, str]:
    """Return the flags of a command line by name."""
    return {name: value for name, _, value in (word.partition("=") for word in words)}
