"""The daemon's metrics about itself."""

from monitor.telemetry.facts import DaemonFacts, DeliveryFacts, HttpFacts, KafkaFacts, SourceFacts
from monitor.telemetry.telemetry import Telemetry

__all__ = ["DaemonFacts", "DeliveryFacts", "HttpFacts", "KafkaFacts", "SourceFacts", "Telemetry"]
