"""A broker for the row about replicas."""

from tests.kafka.conftest import kafka, real_kafka, run_folder, secured_kafka

__all__ = ["kafka", "real_kafka", "run_folder", "secured_kafka"]
