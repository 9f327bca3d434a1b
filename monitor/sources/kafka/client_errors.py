"""Errors of kafka-python, classified by what an operator must do."""

from typing import Any

from kafka import errors

from monitor.sources.kafka.failures import FailureKind, KafkaFailure
from monitor.sources.kafka.internals import ConnectionErrors

_CLASSES: tuple[tuple[FailureKind, str, tuple[type[Exception], ...]], ...] = (
    (
        FailureKind.AUTHENTICATION,
        "a refusal",
        (errors.SaslAuthenticationFailedError, errors.UnsupportedSaslMechanismError, errors.IllegalSaslStateError),
    ),
    (FailureKind.AUTHORIZATION, "a refusal", (errors.AuthorizationError,)),
    (
        FailureKind.FENCED,
        "another process",
        (errors.FencedInstanceIdError, errors.UnreleasedInstanceIdError),
    ),
    (
        FailureKind.CONFIGURATION,
        "members that use another assignor",
        (errors.InconsistentGroupProtocolError,),
    ),
    (
        FailureKind.CONFIGURATION,
        "a session timeout that the broker does not allow",
        (errors.InvalidSessionTimeoutError,),
    ),
    (FailureKind.CONFIGURATION, "a full group", (errors.GroupMaxSizeReachedError,)),
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
    (FailureKind.CODEC, "an unsupported codec", (errors.UnsupportedCodecError, errors.UnsupportedCompressionTypeError)),
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


def classified(error: Exception) -> KafkaFailure:
    """Return the failure for an error of the library."""
    name = type(error).__name__
    for kind, found, classes in _CLASSES:
        if isinstance(error, classes):
            topics = _topics(error) if isinstance(error, errors.TopicAuthorizationFailedError) else ()
            group = isinstance(error, errors.GroupAuthorizationFailedError)
            return KafkaFailure(kind, f"{found} ({name})" if found else name, topics=topics, group=group)
    return KafkaFailure(FailureKind.OTHER, name)


def connection_refusal(connection_errors: ConnectionErrors) -> KafkaFailure | None:
    """Return why the latest connection was refused; None if it was not, or failed otherwise."""
    if connection_errors.latest is None:
        return None
    failure = classified(connection_errors.latest)
    return failure if failure.kind.needs_operator else None


def _topics(error: Exception) -> tuple[str, ...]:
    named: Any = error.args[0] if error.args else ()
    return tuple(one for one in named if isinstance(one, str)) if isinstance(named, set | list | tuple) else ()
