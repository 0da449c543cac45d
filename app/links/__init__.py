"""The links: directed stretches of road with a detector."""
