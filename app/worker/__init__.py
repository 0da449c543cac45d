"""The worker: claims retrain runs, and makes those that are due."""
