"""Accuracy: realised errors, from forecasts joined to the counts that came."""
