from tests.app.conftest import database_url, postgresql, sqlite_template

__all__ = ["database_url", "postgresql", "sqlite_template"]
