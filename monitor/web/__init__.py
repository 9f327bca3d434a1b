"""The web server: pages, JSON API, /metrics, health and reload; TLS, client certificates and passwords."""
