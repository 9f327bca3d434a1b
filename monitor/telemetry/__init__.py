"""What the daemon says about itself: what it took in and refused, how far behind it is, how long its work takes."""

from monitor.telemetry.facts import DaemonFacts, DeliveryFacts, HttpFacts, KafkaFacts, SourceFacts
from monitor.telemetry.telemetry import Telemetry

__all__ = ["DaemonFacts", "DeliveryFacts", "HttpFacts", "KafkaFacts", "SourceFacts", "Telemetry"]
