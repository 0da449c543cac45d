"""Health of the detectors: which counts are suspect, what is missing, and how old the newest count is."""
