"""Why a file as a whole cannot be used."""

from dataclasses import dataclass

from monitor.decode.rejections import RefusedFile
from monitor.sources.ledger import called

_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Failure:
    """A reason, and what the decoder has to say about it."""

    reason: str
    explanation: str = ""
    """What was expected and what was found instead, for whoever made the file; it quotes nothing of it."""

    @classmethod
    def of(cls, refused: RefusedFile, key: bytes) -> "Failure":
        """Return what the decoder says of a file, without the file's name, which stands wherever this is told."""
        said = str(refused).partition("\n")[0].removeprefix(called(key)).lstrip(":, ")
        said = said.removesuffix(f" ({refused.reason})").strip()
        return cls(str(refused.reason), said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…")

    def __str__(self) -> str:
        """Return the sentence for the log."""
        return f"{self.explanation} ({self.reason})" if self.explanation else self.reason


CRASH = Failure("crash")
"""Of a file whose decoding kills the process."""
DECODER_ERROR = Failure("decoder_error")
"""Of a file on which the decoder raised something that it should not."""
