"""Messages that wait to be sent: how many, in which order, and when to try again. Time is passed in; nothing is sent here."""

from dataclasses import dataclass

Key = tuple[str, str, str]
"""What a message is about: model, segment and alert. Messages about the same are sent in their order."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a message is worth trying: a night in which the receiver is down must not swallow a page."""

    attempts: int = 1500
    age_seconds: float = 86_400.0
    first_wait_seconds: float = 1.0
    most_wait_seconds: float = 60.0

    def wait_seconds(self, attempts: int) -> float:
        """Return how long to wait after so many attempts: twice as long each time."""
        # The exponent is bounded, or the power would be too large for a float.
        return min(self.most_wait_seconds, self.first_wait_seconds * 2.0 ** min(attempts - 1, 60))


@dataclass(slots=True)
class Message:
    """One message and how often it was tried."""

    key: Key
    body: bytes
    made: float
    due: float
    attempts: int = 0


class Outbox:
    """A bounded list of messages, oldest first. When it is full the oldest goes: the newest tell how things stand now.

    A message that cannot be delivered holds up only later ones about the same alert. Not safe for threads by itself.
    """

    def __init__(self, capacity: int, patience: Patience) -> None:
        self._capacity, self._patience = capacity, patience
        self._messages: list[Message] = []

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._messages)

    def keys(self) -> set[Key]:
        """Return what the messages that wait are about."""
        return {message.key for message in self._messages}

    def put(self, key: Key, body: bytes, now: float) -> bool:
        """Add a message; tell whether the oldest had to go for it."""
        self._messages.append(Message(key, body, made=now, due=now))
        full = len(self._messages) > self._capacity
        if full:
            del self._messages[0]
        return full

    def next(self, now: float) -> Message | None:
        """Return the first message that may be tried now; it stays until `done` or `again` says what became of it."""
        return next((message for message in self._heads() if message.due <= now), None)

    def wait_seconds(self, now: float) -> float | None:
        """Return how long until a message may be tried; None when there is none."""
        return min((max(0.0, message.due - now) for message in self._heads()), default=None)

    def done(self, message: Message) -> None:
        """A message was sent, or never will be."""
        # It may have been dropped for a newer one while it was on its way.
        self._messages = [one for one in self._messages if one is not message]

    def again(self, message: Message, now: float) -> bool:
        """A message failed in a way that may pass: put it off, and tell whether it is still worth trying."""
        message.attempts += 1
        message.due = now + self._patience.wait_seconds(message.attempts)
        worth = message.attempts < self._patience.attempts and message.due - message.made <= self._patience.age_seconds
        if not worth:
            self.done(message)
        return worth

    def clear(self) -> int:
        """Give up every message; return how many."""
        count, self._messages = len(self._messages), []
        return count

    def _heads(self) -> list[Message]:
        """Return the oldest message about each alert."""
        first: dict[Key, Message] = {}
        for message in self._messages:
            first.setdefault(message.key, message)
        return list(first.values())
