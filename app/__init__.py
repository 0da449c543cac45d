"""The product around the model: service, worker and command line."""
