"""What survives a restart: windows, positions, id hashes and counters, in one SQLite database."""
