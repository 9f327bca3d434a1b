"""Durable state: windows, checkpoints, id hashes, counters and history in one SQLite database."""
