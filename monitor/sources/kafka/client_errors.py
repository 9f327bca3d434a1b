"""Errors of kafka-python, classified by what an operator must do."""

from typing import Any

from kafka import errors

from monitor.sources.kafka.failures import FailureKind, KafkaFailure
from monitor.sources.kafka.internals import FetchErrors

_SORTED: tuple[tuple[FailureKind, str, tuple[type[Exception], ...]], ...] = (
    (
        FailureKind.AUTHENTICATION,
        "a refusal",
        (errors.SaslAuthenticationFailedError, errors.UnsupportedSaslMechanismError, errors.IllegalSaslStateError),
    ),
    (FailureKind.AUTHORIZATION, "a refusal", (errors.AuthorizationError,)),
    (
        FailureKind.FENCED,
        "another one",
        (errors.FencedInstanceIdError, errors.UnreleasedInstanceIdError),
    ),
    (
        FailureKind.CONFIGURATION,
        "members of the group that share partitions in another way",
        (errors.InconsistentGroupProtocolError,),
    ),
    (
        FailureKind.CONFIGURATION,
        "a session timeout outside of what the broker allows",
        (errors.InvalidSessionTimeoutError,),
    ),
    (FailureKind.CONFIGURATION, "a group that takes no more members", (errors.GroupMaxSizeReachedError,)),
    (
        FailureKind.CONFIGURATION,
        "",
        (
            errors.KafkaConfigurationError,
            errors.InvalidGroupIdError,
            errors.UnsupportedVersionError,
            errors.UnrecognizedBrokerVersion,
            errors.InvalidConfigurationError,
        ),
    ),
    (FailureKind.CODEC, "another compression", (errors.UnsupportedCodecError, errors.UnsupportedCompressionTypeError)),
    (FailureKind.UNKNOWN_TOPIC, "none", (errors.UnknownTopicOrPartitionError, errors.InvalidTopicError)),
    (
        FailureKind.UNREACHABLE,
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
"""The first match counts. The library's own messages are not repeated: they may quote anything."""


def sorted_out(error: Exception) -> KafkaFailure:
    """Return the failure for an error of the library."""
    name = type(error).__name__
    for kind, found, classes in _SORTED:
        if isinstance(error, classes):
            topics = _topics(error) if isinstance(error, errors.TopicAuthorizationFailedError) else ()
            group = isinstance(error, errors.GroupAuthorizationFailedError)
            return KafkaFailure(kind, f"{found} ({name})" if found else name, topics=topics, group=group)
    return KafkaFailure(FailureKind.OTHER, name)


def refused(refusals: FetchErrors) -> KafkaFailure | None:
    """Return why the latest connection was refused; None if it was not, or failed otherwise."""
    if refusals.latest is None:
        return None
    trouble = sorted_out(refusals.latest)
    return trouble if trouble.kind.needs_people else None


def _topics(error: Exception) -> tuple[str, ...]:
    named: Any = error.args[0] if error.args else ()
    return tuple(one for one in named if isinstance(one, str)) if isinstance(named, set | list | tuple) else ()
