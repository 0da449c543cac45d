"""Counts: vehicles on one link in one slot, from files to gap-marked series."""
