"""The commands of `kvstress`, one a file. Torch, ray and the ranks' code are imported when a command runs."""
