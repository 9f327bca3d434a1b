"""Builds the parts, runs, reloads and stops them; status, watchdog, systemd, logging, clock."""
