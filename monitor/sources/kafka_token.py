"""What Kafka's client asks for a token whenever it connects."""

from collections.abc import Callable

from kafka.net.sasl.oauth import AbstractTokenProvider


class TokenFile(AbstractTokenProvider):  # type: ignore[misc]  # the library has no types
    """Reads the token from its file each time: somebody else renews it."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    def token(self) -> str:
        """Return the token."""
        return self._read()
