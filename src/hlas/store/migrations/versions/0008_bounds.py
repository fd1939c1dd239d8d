"""Bounds on an entry's keywords in the database too, whoever writes them."""

from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    # Not valid: entries that were made before stay, and are held to it when they are changed.
    op.execute(
        "alter table knowledge add constraint ck_knowledge__keywords check ("
        "cardinality(keywords) <= 50 and length(knowledge_subject('', keywords)) <= 50 * 81"
        ") not valid"
    )


def downgrade() -> None:
    op.execute("alter table knowledge drop constraint ck_knowledge__keywords")
