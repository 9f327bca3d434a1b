"""Where records come from: a watched directory, or Kafka topics."""
