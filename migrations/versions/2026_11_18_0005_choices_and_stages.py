"""Store decisions on links without an active model, and the progress of the stage of a retrain run."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; what is stored stays as it is."""
    op.add_column("links", sa.Column("choice", sa.String(length=16), nullable=True))
    op.add_column("retrain_runs", sa.Column("stage", sa.String(length=16), nullable=True))
    op.add_column("retrain_runs", sa.Column("stage_share", sa.Double(), nullable=True))
    op.add_column("retrain_runs", sa.Column("stage_started_at", sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Drop them again."""
    op.drop_column("retrain_runs", "stage_started_at")
    op.drop_column("retrain_runs", "stage_share")
    op.drop_column("retrain_runs", "stage")
    op.drop_column("links", "choice")
