"""The daemon: build, run, reload, stop; status, watchdog, logging, clock."""
