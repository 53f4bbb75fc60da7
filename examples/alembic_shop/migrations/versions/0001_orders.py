"""The shop's own table."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "orders",
        sa.Column("id", sa.BigInteger, sa.Identity(), primary_key=True),
        sa.Column("customer", sa.Text, nullable=False),
        sa.Column("cents", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False, server_default="placed"),
    )


def downgrade() -> None:
    op.drop_table("orders")
