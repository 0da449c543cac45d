"""The reason for which counts were deleted, and from when on a link's stored forecasts may be served."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add both columns; what is stored stays as it is."""
    op.add_column("count_corrections", sa.Column("reason", sa.Text(), nullable=True))
    op.add_column("links", sa.Column("forecasts_valid_from", sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    """Drop both columns."""
    op.drop_column("links", "forecasts_valid_from")
    op.drop_column("count_corrections", "reason")
