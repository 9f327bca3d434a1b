"""Public test helpers: the oracle, and contract checks for estimators and sources."""

from monitor.testing.oracle import Oracle, check_estimator, oracle_temperature
from monitor.testing.source_checks import check_source

__all__ = ["Oracle", "check_estimator", "check_source", "oracle_temperature"]
