"""A watched directory as a source: tailed files and whole files."""
