"""A tenant's own limits, over those of the environment."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.execute(
        "alter table tenants add column limits jsonb not null default '{}', "
        "add constraint ck_tenants__limits check (jsonb_typeof(limits) = 'object')"
    )
    # Every worker reads these every few seconds; few tenants have any.
    op.execute("create index ix_tenants__limits on tenants (id) where limits <> '{}'")


def downgrade() -> None:
    op.execute("drop index ix_tenants__limits")
    op.execute("alter table tenants drop column limits")
