"""`kvstress doctor`: what this machine has, what of kvstress will run on it, and how to mend the rest."""
