"""The registry of trained models, and the ones in memory."""
