"""The settings toolkit: typed YAML, every problem at once, with line numbers."""
