"""Accuracy: forecasts joined to the counts that came, and the health of detectors."""
