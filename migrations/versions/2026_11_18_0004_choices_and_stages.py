"""What was decided about links without an active model."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; what is stored stays as it is."""
    op.add_column("links", sa.Column("choice", sa.String(length=16), nullable=True))


def downgrade() -> None:
    """Drop it again."""
    op.drop_column("links", "choice")
