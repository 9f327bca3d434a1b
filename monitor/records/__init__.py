"""Bytes are distrusted here and nowhere else: files become columns of validated outputs, plus rejections."""
