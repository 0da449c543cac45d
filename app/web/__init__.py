"""The edge of the service: what every request passes, whatever it asks for."""
