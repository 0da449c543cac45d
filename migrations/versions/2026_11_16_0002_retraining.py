"""Retrain runs, activations with their history, the audit log, webhooks, and the size of artifacts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add what retraining needs."""
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("key_id", sa.String(length=64), nullable=False),
        sa.Column("key_name", sa.Text(), nullable=False),
        sa.Column("method", sa.String(length=8), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("request_id", sa.String(length=64), nullable=False),
        sa.Column("client", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("audit_pkey")),
    )
    op.create_index("audit_at_idx", "audit", ["at"], unique=False)

    op.create_table(
        "retrain_runs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("algorithm", sa.String(length=16), nullable=False),
        sa.Column("parameters", sa.JSON(), nullable=False),
        sa.Column("activate", sa.String(length=16), nullable=False),
        sa.Column("requested_by", sa.String(length=64), nullable=False),
        sa.Column("requested_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("occasion", sa.Text(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("worker", sa.String(length=64), nullable=True),
        sa.Column("heartbeat_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("cancel_requested", sa.Boolean(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')",
            name=op.f("retrain_runs_state_known_check"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("retrain_runs_pkey")),
    )
    op.create_index("retrain_runs_occasion_key", "retrain_runs", ["occasion"], unique=True)

    op.create_table(
        "webhooks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("events", sa.String(length=64), nullable=False),
        sa.Column("secret", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("created_by", sa.String(length=64), nullable=False),
        sa.Column("last_activation", sa.Integer(), nullable=False),
        sa.Column("last_forecast", sa.Text(), nullable=True),
        sa.Column("delivered_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("retry_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("webhooks_pkey")),
    )
    op.create_table(
        "activations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("link_key", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("previous_version", sa.Integer(), nullable=True),
        sa.Column("activated_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("activated_by", sa.String(length=64), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("figures", sa.JSON(), nullable=True),
        sa.ForeignKeyConstraint(
            ["link_key"], ["links.link_key"], name=op.f("activations_link_key_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("activations_pkey")),
    )
    op.create_index("activations_link_key_id_idx", "activations", ["link_key", "id"], unique=False)

    op.create_table(
        "retrain_links",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("link_key", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("version", sa.Integer(), nullable=True),
        sa.Column("outcome", sa.String(length=16), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("figures", sa.JSON(), nullable=True),
        sa.CheckConstraint(
            "state IN ('waiting', 'training', 'done', 'failed', 'cancelled')",
            name=op.f("retrain_links_state_known_check"),
        ),
        sa.ForeignKeyConstraint(
            ["link_key"], ["links.link_key"], name=op.f("retrain_links_link_key_fkey"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["run_id"], ["retrain_runs.id"], name=op.f("retrain_links_run_id_fkey"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "link_key", name=op.f("retrain_links_pkey")),
    )
    op.create_index(
        "retrain_links_one_open_idx",
        "retrain_links",
        ["link_key"],
        unique=True,
        sqlite_where=sa.text("state IN ('waiting', 'training')"),
        postgresql_where=sa.text("state IN ('waiting', 'training')"),
    )

    with op.batch_alter_table("trained_models", schema=None) as batch_op:
        batch_op.add_column(sa.Column("size_bytes", sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    """Drop it again."""
    with op.batch_alter_table("trained_models", schema=None) as batch_op:
        batch_op.drop_column("size_bytes")

    op.drop_table("retrain_links")
    op.drop_table("activations")
    op.drop_table("webhooks")
    op.drop_table("retrain_runs")
    op.drop_table("audit")
