"""A watched directory as a source: tailed files, whole files, archive."""
