"""Prometheus rule files for a configuration."""
