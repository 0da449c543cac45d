"""Accuracy: realised errors, from forecasts joined to the realised counts."""
