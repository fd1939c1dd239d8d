"""`hlas product` on the command line: output and exit status."""

import asyncio
import os
import sys
from pathlib import Path

import orjson

from hlas.store.db import Database
from hlas.tenants import tenants


async def hlas(database_url: str, *arguments: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", "from hlas.cli import main; main()", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, "DATABASE_URL": database_url},
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


async def test_import_list_remove(database_url: str, operators: Database, tmp_path: Path) -> None:
    """Products of a file are imported, listed and removed; errors are one line."""
    await tenants.add(operators, "Shop", "shop", [])
    file, bad = tmp_path / "products.csv", tmp_path / "bad.csv"
    file.write_text("sku;name;price;barva\nA1;Konvice;500 Kč;červená\nA2;Hrnek;;\n", "utf-8-sig")
    bad.write_text("sku,name\nA1,\n", "utf-8")
    imported = await hlas(database_url, "product", "import", str(file), "--tenant", "shop")
    assert imported == (0, "shop: 2 added, 0 updated, 0 unchanged, 0 removed.\n", "")
    code, out, _ = await hlas(database_url, "product", "list", "--tenant", "shop", "--json")
    assert (code, orjson.loads(out)[0]) == (
        0,
        {
            "sku": "A1",
            "name": "Konvice",
            "description": "",
            "price": "500 Kč",
            "url": "",
            "attributes": {"barva": "červená"},
        },
    )
    removed = await hlas(database_url, "product", "remove", "A1", "--tenant", "shop")
    assert removed == (0, "Removed 1 of shop's products.\n", "")
    listed = await hlas(database_url, "product", "list", "--tenant", "shop")
    assert listed == (0, "A2  Hrnek\n", "")
    for arguments, told in (
        (("import", str(bad)), "hlas: bad.csv, line 2: the sku or the name is empty\n"),
        (("import", str(tmp_path)), f"hlas: {tmp_path}: Is a directory\n"),
        (("remove", "A1"), "hlas: there is no product A1\n"),
    ):
        outcome = await hlas(database_url, "product", *arguments, "--tenant", "shop")
        assert outcome == (1, "", told)
