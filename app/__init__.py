"""The product around the model: command line and, to come, training and service."""
