"""Launchers: start one rank a process (or all in this one), report how each ended, leave none behind."""
