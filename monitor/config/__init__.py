"""The configuration: a YAML file as frozen data, with every problem reported at once."""
