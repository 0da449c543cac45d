"""The operators' page: what the service knows, to look at and to act on."""
