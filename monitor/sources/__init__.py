"""Where records come from: one file a source, behind the contract in `base.py`."""
