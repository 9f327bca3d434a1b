"""The live demo: a made-up but real classifier at made-up hospitals, watched by a real daemon.

`story.py` is what happens, `exams.py` who is examined and what the classifier says, `truth.py` what it had right,
`feed.py` how records reach the daemon, `folder.py` what lies in `.demo/`, `process.py` and `leash.py` the daemon,
`account.py` what is told, and `play.py` lets it all happen.
"""
