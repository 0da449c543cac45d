"""The server: middleware, connections, limits on bodies, readiness, metrics and the OpenAPI document."""
