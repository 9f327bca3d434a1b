"""Certificates made with the openssl command, for servers and clients."""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.servers import real_server


@dataclass(frozen=True)
class Pair:
    """A certificate and its key."""

    cert: Path
    key: Path

    def copied_to(self, other: "Pair") -> None:
        """Replace another pair atomically, as a rotation does."""
        for source, target in ((self.cert, other.cert), (self.key, other.key)):
            fresh = target.with_suffix(".new")
            fresh.write_bytes(source.read_bytes())
            fresh.replace(target)


class Authority:
    """A certificate authority."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.pair = Pair(folder / f"{name}.crt", folder / f"{name}.key")
        _openssl("req", "-x509", *_NEW_KEY, "-keyout", self.pair.key, "-out", self.pair.cert, "-subj", f"/CN={name}")

    def signed(self, name: str, san: str = "DNS:localhost,IP:127.0.0.1") -> Pair:
        """Return a new certificate with subject alternative names."""
        pair = Pair(self.folder / f"{name}.crt", self.folder / f"{name}.key")
        request, extensions = self.folder / f"{name}.csr", self.folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={san}\n")
        _openssl("req", "-new", *_NEW_KEY, "-keyout", pair.key, "-out", request, "-subj", f"/CN={name}")
        signing = ("-CA", self.pair.cert, "-CAkey", self.pair.key, "-CAcreateserial", "-extfile", extensions)
        _openssl("x509", "-req", "-in", request, "-out", pair.cert, "-days", "2", *signing)
        return pair


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*words: object) -> None:
    subprocess.run([real_server("openssl"), *map(str, words)], check=True, capture_output=True)
