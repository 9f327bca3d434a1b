"""Where findings go: the metrics page, the rule file, the web of others."""
