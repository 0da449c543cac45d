"""The shelf of trained models, and the ones in memory."""
