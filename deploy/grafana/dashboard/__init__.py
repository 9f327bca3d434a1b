"""The Grafana dashboard of cpcmon, in code. `python -m deploy.grafana.dashboard` writes deploy/grafana/cpcmon.json."""
