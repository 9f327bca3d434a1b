"""For those who test against cpcmon: the oracle, and contract checks for estimators and sources."""
