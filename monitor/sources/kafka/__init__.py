"""A Kafka consumer group member as a source."""
