"""The ingestion loop: poll, deduplicate, commit, update windows, acknowledge; restore; backlog."""
