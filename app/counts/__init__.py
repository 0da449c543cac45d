"""Counts: vehicles on one link in one slot; parsing, storing, importing and reading them."""
