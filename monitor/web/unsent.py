"""Answers that their clients have not read yet: each takes memory for as long as its client takes to read it."""

from collections.abc import Callable

from monitor.web.counts import Closed, Counting


class Unsent:
    """Bounds what all answers under way take together. Lives on the server's loop."""

    def __init__(self, most_bytes: int, counting: Counting) -> None:
        self._most_bytes = most_bytes
        self._counting = counting
        # In the order in which they began to be sent: who has read for longest is the slowest.
        self._held: dict[object, tuple[int, Callable[[], None]]] = {}

    def hold(self, owner: object, size: int, cut: Callable[[], None]) -> None:
        """An answer begins to be sent; where it does not fit in beside the others, the oldest ones are cut."""
        while self._held and sum(held for held, _ in self._held.values()) + size > self._most_bytes:
            oldest = next(iter(self._held))
            _, cut_oldest = self._held.pop(oldest)
            self._counting.closed(Closed.CAP)
            cut_oldest()
        self._held[owner] = (size, cut)

    def let_go(self, owner: object) -> None:
        """An answer was sent, or never will be."""
        self._held.pop(owner, None)
