"""Kafka topics as a source, read by a member of a consumer group."""
