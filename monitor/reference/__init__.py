"""The reference: object, file format, summary, and offline estimation."""
