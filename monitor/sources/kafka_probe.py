"""Why no broker answers: the client library says only that none did, so each is tried by hand."""

import socket
import ssl

from monitor.sources.kafka_options import KafkaOptions
from monitor.sources.kafka_security import tls_context
from monitor.sources.kafka_trouble import Kind, Trouble

_TIMEOUT_SECONDS = 2.0


def probe(options: KafkaOptions) -> Trouble:
    """Return what is the matter with the brokers; may take some seconds."""
    found = [_try(options, broker) for broker in options.brokers]
    # What is wrong with a broker that can be reached says more than that another cannot.
    worst = next((one for one in found if one.kind is not Kind.UNREACHABLE), found[-1])
    return worst if len(set(map(str, found))) > 1 else found[0]


def _try(options: KafkaOptions, broker: str) -> Trouble:
    host, _, port = broker.rpartition(":")
    host = host.strip("[]")
    try:
        with socket.create_connection((host, int(port)), timeout=_TIMEOUT_SECONDS) as connection:
            if options.tls is not None:
                with tls_context(options.tls).wrap_socket(connection, server_hostname=host):
                    pass
    except OSError as error:
        return _explained(error, host)
    except Trouble as trouble:
        return trouble
    if options.tls is None:
        found = "an open port that does not answer as Kafka does, perhaps one that expects TLS"
    elif options.sasl is None:
        found = "a port that breaks off, perhaps one that expects a user or another certificate"
    else:
        found = "an open port that does not answer as Kafka does"
    return Trouble(Kind.UNREACHABLE, found)


def _explained(error: OSError, host: str) -> Trouble:
    match error:
        case ssl.SSLCertVerificationError():
            return Trouble(Kind.TLS, f"a certificate that is not trusted ({error.verify_message})")
        case ssl.SSLError():
            return Trouble(Kind.TLS, f"no TLS ({(error.reason or 'broken off').lower().replace('_', ' ')})")
        case socket.gaierror():
            return Trouble(Kind.UNREACHABLE, f"no address for host {host}")
        case TimeoutError():
            return Trouble(Kind.UNREACHABLE, "no answer in time")
        case _:
            return Trouble(Kind.UNREACHABLE, (error.strerror or type(error).__name__).lower())
