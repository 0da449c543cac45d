"""The audit log: every admin call."""
