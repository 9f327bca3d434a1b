"""Pure numbers: no file, clock, lock or log at or below this package."""
