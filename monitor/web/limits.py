"""What a client may take of the server: time, bytes, connections."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WebLimits:
    """The limits, each against a client that is slow or means harm."""

    connections: int = 128
    """Past it, the oldest connection that is not being answered makes room."""
    request_seconds: float = 8.0
    """From connecting to the last byte of the first request, the TLS handshake included; then from each further
    request's first byte to its last. However the bytes are spread: a byte a second gains nothing."""
    idle_seconds: float = 30.0
    """How long a connection is kept between requests."""
    write_seconds: float = 10.0
    """How long a client may take to read an answer, and in addition:"""
    write_bytes_per_second: int = 100_000
    stalled_seconds: float = 1.0
    """After how long without an end a client that reads slowly makes room, when nobody else can."""
    unsent_bytes: int = 256 << 20
    """The most that answers take together that their clients have not read yet; past it, the slowest makes room."""
    head_bytes: int = 64 << 10
    """The most of a request's line and headers."""
    body_bytes: int = 64 << 10
    """The most of a request's body. No page needs one; it is read and dropped."""
    linger_seconds: float = 2.0
    linger_bytes: int = 2 << 20
    """How long, and how much, a client that was refused in the middle of its request is listened to, so that it
    gets to read why."""
    stop_seconds: float = 2.0
    """How long answers that are under way when the server stops may still take."""
    page_threads: int = 4
    waiting_passwords: int = 96
    """How many passwords may wait to be checked; past it, clients are told 503. Fewer than connections, so that whoever
    need not wait still gets in."""

    def writing(self, size: int) -> float:
        """Return how long a client may take to read an answer of a size."""
        return self.write_seconds + size / self.write_bytes_per_second
