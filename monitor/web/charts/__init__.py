"""Charts: pure functions from numbers to inline SVG. Colours come from the style sheet."""
