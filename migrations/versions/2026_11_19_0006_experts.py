"""Let a link have an active model of each algorithm, and store the aggregation of its experts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

INDEX, ACTIVE = "trained_models_one_active_idx", sa.text("state = 'active'")
# Rows of the method ENSEMBLE, which the previous version does not know, get that of the expert with the largest weight.
METHOD_OF_EXPERT = """
    UPDATE forecasts SET method = coalesce((
        SELECT CASE algorithm WHEN 'KR_SML' THEN 0 WHEN 'NETWORK' THEN 6 END FROM trained_models
        WHERE trained_models.link_key = forecasts.link_key AND trained_models.version = forecasts.model_version
    ), 4) WHERE method = 7
"""
RETIRE_ALL_BUT_LAST = """
    UPDATE trained_models SET state = 'retired', retired_at = activated_at WHERE state = 'active' AND EXISTS (
        SELECT 1 FROM trained_models AS later WHERE later.link_key = trained_models.link_key
        AND later.state = 'active' AND later.activated_at > trained_models.activated_at
    )
"""


def upgrade() -> None:
    """Add the table and the column; what is active stays so, and forecasts as before."""
    op.drop_index(INDEX, "trained_models")
    _create_index("link_key", "algorithm")
    op.create_table(
        "ensembles",
        sa.Column("link_key", sa.Integer(), nullable=False),
        sa.Column("as_of", sa.BigInteger(), nullable=True),
        sa.Column("state", sa.LargeBinary(), nullable=False),
        sa.Column("start_as_of", sa.BigInteger(), nullable=True),
        sa.Column("start", sa.LargeBinary(), nullable=False),
        sa.Column("issued_version", sa.Integer(), nullable=True),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["link_key"], ["links.link_key"], name=op.f("ensembles_link_key_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("link_key", name=op.f("ensembles_pkey")),
    )
    op.add_column("forecasts", sa.Column("experts", sa.LargeBinary(), nullable=True))
    op.add_column("retrain_links", sa.Column("versions", sa.JSON(), nullable=True))


def downgrade() -> None:
    """Keep of each link's active models the one activated last, which then forecasts alone; weights are lost."""
    op.execute(RETIRE_ALL_BUT_LAST)
    op.execute(METHOD_OF_EXPERT)
    op.execute("UPDATE links SET choice = NULL WHERE choice = 'ensemble'")
    op.drop_column("retrain_links", "versions")
    op.drop_column("forecasts", "experts")
    op.drop_table("ensembles")
    op.drop_index(INDEX, "trained_models")
    _create_index("link_key")


def _create_index(*columns: str) -> None:
    op.create_index(INDEX, "trained_models", columns, unique=True, sqlite_where=ACTIVE, postgresql_where=ACTIVE)
