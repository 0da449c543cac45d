"""Events: new forecasts and activations, streamed and pushed."""
