"""Names of folders and files that belong to a link."""

from __future__ import annotations


def folder_name(link_id: str) -> str:
    """Return a link's name as that of a folder: its id, but for a leading dot, which would hide or escape."""
    return f"%2E{link_id[1:]}" if link_id.startswith(".") else link_id
