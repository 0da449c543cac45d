"""Links, counts with their corrections, forecasts, the shelf of trained models and API keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the first tables."""
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.String(length=16), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("scopes", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("replaced_by", sa.String(length=16), nullable=True),
        sa.PrimaryKeyConstraint("key_id", name=op.f("api_keys_pkey")),
    )
    op.create_table(
        "links",
        sa.Column("link_key", sa.Integer(), nullable=False),
        sa.Column("link_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("zone", sa.String(length=64), nullable=False),
        sa.Column("slot_minutes", sa.Integer(), nullable=False),
        sa.Column("capacity", sa.Double(), nullable=True),
        sa.Column("geometry", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False),
        sa.CheckConstraint("slot_minutes > 0", name=op.f("links_slot_minutes_positive_check")),
        sa.PrimaryKeyConstraint("link_key", name=op.f("links_pkey")),
        sa.UniqueConstraint("link_id", name=op.f("links_link_id_key")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "count_corrections",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("link_key", sa.Integer(), nullable=False),
        sa.Column("slot_start", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("quality", sa.SmallInteger(), nullable=False),
        sa.Column("replaced_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["link_key"], ["links.link_key"], name=op.f("count_corrections_link_key_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("count_corrections_pkey")),
    )
    op.create_index(
        "count_corrections_link_key_slot_start_idx", "count_corrections", ["link_key", "slot_start"], unique=False
    )

    op.create_table(
        "counts",
        sa.Column("link_key", sa.Integer(), nullable=False),
        sa.Column("slot_start", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("quality", sa.SmallInteger(), nullable=False),
        sa.CheckConstraint("count >= 0", name=op.f("counts_not_negative_check")),
        sa.CheckConstraint("quality BETWEEN 0 AND 2", name=op.f("counts_quality_known_check")),
        sa.ForeignKeyConstraint(
            ["link_key"], ["links.link_key"], name=op.f("counts_link_key_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("link_key", "slot_start", name=op.f("counts_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "forecasts",
        sa.Column("link_key", sa.Integer(), nullable=False),
        sa.Column("slot_start", sa.BigInteger(), nullable=False),
        sa.Column("horizon", sa.SmallInteger(), nullable=False),
        sa.Column("model_version", sa.Integer(), nullable=False),
        sa.Column("expected", sa.Double(), nullable=False),
        sa.Column("lower", sa.Double(), nullable=True),
        sa.Column("upper", sa.Double(), nullable=True),
        sa.Column("level", sa.Double(), nullable=False),
        sa.Column("usual", sa.Double(), nullable=True),
        sa.Column("method", sa.SmallInteger(), nullable=False),
        sa.Column("degraded_reason", sa.Text(), nullable=True),
        sa.Column("filled_lags", sa.SmallInteger(), nullable=False),
        sa.Column("issued_at", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("horizon >= 1", name=op.f("forecasts_horizon_from_1_check")),
        sa.ForeignKeyConstraint(
            ["link_key"], ["links.link_key"], name=op.f("forecasts_link_key_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("link_key", "slot_start", "horizon", "model_version", name=op.f("forecasts_pkey")),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "trained_models",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("link_key", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("algorithm", sa.String(length=16), nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("trained_from", sa.DateTime(timezone=True), nullable=False),
        sa.Column("trained_to", sa.DateTime(timezone=True), nullable=False),
        sa.Column("about", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("activated_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("damaged", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "state IN ('candidate', 'active', 'retired')", name=op.f("trained_models_state_known_check")
        ),
        sa.ForeignKeyConstraint(
            ["link_key"], ["links.link_key"], name=op.f("trained_models_link_key_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("trained_models_pkey")),
        sa.UniqueConstraint("link_key", "version", name=op.f("trained_models_link_key_version_key")),
    )
    op.create_index(
        "trained_models_one_active_idx",
        "trained_models",
        ["link_key"],
        unique=True,
        sqlite_where=sa.text("state = 'active'"),
        postgresql_where=sa.text("state = 'active'"),
    )

    op.create_table(
        "upstream_links",
        sa.Column("link_key", sa.Integer(), nullable=False),
        sa.Column("upstream_key", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["link_key"], ["links.link_key"], name=op.f("upstream_links_link_key_fkey"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["upstream_key"], ["links.link_key"], name=op.f("upstream_links_upstream_key_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("link_key", "upstream_key", name=op.f("upstream_links_pkey")),
    )
    op.create_index("upstream_links_upstream_key_idx", "upstream_links", ["upstream_key"], unique=False)


def downgrade() -> None:
    """Drop them all."""
    op.drop_table("upstream_links")
    op.drop_table("trained_models")
    op.drop_table("forecasts")
    op.drop_table("counts")
    op.drop_table("count_corrections")
    op.drop_table("links")
    op.drop_table("api_keys")
