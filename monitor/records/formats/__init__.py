"""One reader for each file format of a stream."""
