"""The live demo: a small classifier on simulated data, monitored by a real daemon.

`story.py` simulates hospitals and exams; `demo_folder.py` writes `.demo/` and sends records; `play.py` runs the daemon
under `supervisor.py` and narrates.
"""
