"""Settings that lie in files of their own, as container engines hand out secrets."""

from __future__ import annotations

from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import SecretsSettingsSource


class SecretFiles(SecretsSettingsSource):
    """Settings as files of their own, such as ``flowcast_admin_key``; an empty file sets nothing."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Read a setting's file, if there is one."""
        try:
            value, key, is_complex = super().get_field_value(field, field_name)
        except (OSError, ValueError) as problem:
            file = f"flowcast_{field_name} in {self.secrets_dir}"
            raise ValueError(f"{file} cannot be read: {getattr(problem, 'strerror', None) or problem}") from None
        return value or None, key, is_complex
