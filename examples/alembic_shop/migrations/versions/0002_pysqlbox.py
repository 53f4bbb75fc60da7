"""pysqlbox's schema. After an upgrade of pysqlbox, add another such migration."""

from alembic import op

from pysqlbox.contrib import alembic

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    alembic.deploy(op.get_bind())


def downgrade() -> None:
    alembic.refuse()
