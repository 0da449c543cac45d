"""Maintenance of the database: copying it into another, and removing what is old."""
