"""The stress tester: operations, engines under test, serving loop, probe, checks, launchers, coordinator."""
