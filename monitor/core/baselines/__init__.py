"""What windows are compared with: labelled and own baselines, and the drift of the outputs."""
