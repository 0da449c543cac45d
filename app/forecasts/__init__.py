"""Forecasts: issued when a count comes in, stored, and served."""
