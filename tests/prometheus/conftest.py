"""Brokers for the test that needs one."""

from tests.kafka.conftest import kafka, real_kafka, run_folder, secured_kafka

__all__ = ["kafka", "real_kafka", "run_folder", "secured_kafka"]
