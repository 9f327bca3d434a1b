"""Readers of whole files for the offline commands."""
