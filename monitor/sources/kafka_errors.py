"""What the client library raises, sorted into what people need to know."""

from typing import Any

from kafka import errors

from monitor.sources.kafka_internals import Refusals
from monitor.sources.kafka_trouble import Kind, Trouble

_SORTED: tuple[tuple[Kind, str, tuple[type[Exception], ...]], ...] = (
    (
        Kind.AUTHENTICATION,
        "a refusal",
        (errors.SaslAuthenticationFailedError, errors.UnsupportedSaslMechanismError, errors.IllegalSaslStateError),
    ),
    (Kind.AUTHORIZATION, "a refusal", (errors.AuthorizationError,)),
    (
        Kind.FENCED,
        "another one",
        (errors.FencedInstanceIdError, errors.UnreleasedInstanceIdError),
    ),
    (
        Kind.CONFIGURATION,
        "members of the group that share partitions in another way",
        (errors.InconsistentGroupProtocolError,),
    ),
    (
        Kind.CONFIGURATION,
        "a session timeout outside of what the broker allows",
        (errors.InvalidSessionTimeoutError,),
    ),
    (Kind.CONFIGURATION, "a group that takes no more members", (errors.GroupMaxSizeReachedError,)),
    (
        Kind.CONFIGURATION,
        "",
        (
            errors.KafkaConfigurationError,
            errors.InvalidGroupIdError,
            errors.UnsupportedVersionError,
            errors.UnrecognizedBrokerVersion,
            errors.InvalidConfigurationError,
        ),
    ),
    (Kind.CODEC, "another compression", (errors.UnsupportedCodecError, errors.UnsupportedCompressionTypeError)),
    (Kind.UNKNOWN_TOPIC, "none", (errors.UnknownTopicOrPartitionError, errors.InvalidTopicError)),
    (
        Kind.UNREACHABLE,
        "no answer",
        (
            errors.KafkaConnectionError,
            errors.KafkaTimeoutError,
            errors.NodeNotReadyError,
            errors.RequestTimedOutError,
            errors.BrokerNotAvailableError,
            errors.CoordinatorNotAvailableError,
            errors.UnknownBrokerIdError,
        ),
    ),
)
"""The first that fits counts. What stands in the library's own messages is not repeated: it may quote anything."""


def sorted_out(error: Exception) -> Trouble:
    """Return what an error of the library means."""
    name = type(error).__name__
    for kind, found, classes in _SORTED:
        if isinstance(error, classes):
            topics = _topics(error) if isinstance(error, errors.TopicAuthorizationFailedError) else ()
            group = isinstance(error, errors.GroupAuthorizationFailedError)
            return Trouble(kind, f"{found} ({name})" if found else name, topics=topics, group=group)
    return Trouble(Kind.OTHER, name)


def refused(refusals: Refusals) -> Trouble | None:
    """Return why the latest connection was refused; None when it was not, or just did not come to be."""
    if refusals.latest is None:
        return None
    trouble = sorted_out(refusals.latest)
    return trouble if trouble.kind.needs_people else None


def _topics(error: Exception) -> tuple[str, ...]:
    named: Any = error.args[0] if error.args else ()
    return tuple(one for one in named if isinstance(one, str)) if isinstance(named, set | list | tuple) else ()
