"""What serves requests: middleware, connections, limits, readiness and metrics."""
