"""Decodes files, lines and messages into validated record batches, with rejections."""
