"""Charts: each a pure function from numbers to SVG that stands in the page itself. Colours come from the style sheet."""
