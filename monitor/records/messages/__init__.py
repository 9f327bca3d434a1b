"""Kafka messages: framing into records."""
