"""Retraining: runs requested over REST, carried out by a process of their own."""
