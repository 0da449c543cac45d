"""The steps, oldest first by date."""
