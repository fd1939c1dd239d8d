"""Helpers of the revisions: the same row-level security on every table, functions."""

from pathlib import Path

from alembic import op

STORE = Path(__file__).parents[1]

CURRENT_TENANT = "(select nullif(current_setting('app.tenant_id', true), '')::uuid)"


def read(name: str) -> str:
    """The SQL of a function that has a file of its own."""
    return (STORE / name).read_text("utf-8")


def execute_all(script: str) -> None:
    """Run several plain statements, each ended by a semicolon at the end of its line."""
    for statement in script.split(";\n"):
        if statement.strip():
            op.execute(statement)


def isolate(table: str, column: str = "tenant_id") -> None:
    """Restrict a table to the rows of the transaction's tenant; operators see all rows."""
    op.execute(f"alter table {table} enable row level security")
    op.execute(f"alter table {table} force row level security")
    op.execute(
        f"create policy tenant_isolation on {table} "
        f"using ({column} = {CURRENT_TENANT}) with check ({column} = {CURRENT_TENANT})"
    )
    op.execute(
        f"create policy operator_access on {table} to hlas_operator using (true) with check (true)"
    )
    op.execute(f"grant select, insert, update, delete on {table} to hlas_operator")


def define(signature: str, owner: str, callers: str, statement: str) -> None:
    """Create a SECURITY DEFINER function, owned by a role that has no other purpose."""
    # ALTER FUNCTION ... OWNER needs CREATE on the schema for the new owner, for this moment only.
    op.execute(statement)
    op.execute(f"grant create on schema public to {owner}")
    op.execute(f"alter function {signature} owner to {owner}")
    op.execute(f"revoke create on schema public from {owner}")
    op.execute(f"set local role {owner}")
    op.execute(f"revoke all on function {signature} from public")
    op.execute(f"grant execute on function {signature} to {callers}")
    op.execute("reset role")
