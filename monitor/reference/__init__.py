"""The reference: the object, its file format, its summary, and what offline commands compute with it."""
