"""Forecasts: issued when a count is stored, kept, and served."""
