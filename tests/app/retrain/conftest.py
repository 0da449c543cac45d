from tests.app.forecasts.conftest import city, trained

__all__ = ["city", "trained"]
