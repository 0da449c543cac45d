"""Everything that can be set from outside: ``FLOWCAST_…`` variables, or files for secrets."""

from app.settings.settings import ClockKind, Settings, Switch, is_secret, settings_from_environment

__all__ = ["ClockKind", "Settings", "Switch", "is_secret", "settings_from_environment"]
