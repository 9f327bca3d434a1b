"""The HTTP server: /metrics, health, reload, status, and a page to look at; TLS, client certificates and passwords."""
