"""The operators' page."""
