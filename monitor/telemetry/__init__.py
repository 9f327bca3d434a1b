"""The daemon's metrics about itself."""

from monitor.telemetry.families import DaemonFacts, DeliveryFacts, HttpFacts
from monitor.telemetry.telemetry import Telemetry

__all__ = ["DaemonFacts", "DeliveryFacts", "HttpFacts", "Telemetry"]
