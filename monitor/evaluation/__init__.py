"""Snapshot, estimators, alerts, report, on a schedule."""
