"""API keys and their scopes, and the audit of admin calls."""
