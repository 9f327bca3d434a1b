"""Where reports go: the Prometheus page, the webhook, the heartbeat."""
