"""Labels that come late: the join, audited accuracy, the track record."""
