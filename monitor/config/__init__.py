"""The configuration: YAML that is read strictly, into frozen objects, with every mistake named at once."""
