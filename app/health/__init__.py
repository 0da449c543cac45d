"""Health of the detectors: what not to believe, what is missing, and how old the newest count is."""
