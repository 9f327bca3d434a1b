"""The live demo: a made-up but real classifier at made-up hospitals, watched by a real daemon.

`story.py` says what happens, who is examined and what was right; `demo_folder.py` writes `.demo/` and feeds records; `play.py`
runs the daemon by `supervisor.py` and narrates.
"""
