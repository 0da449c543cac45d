"""The worker: executes retrain runs, and does periodic work."""
