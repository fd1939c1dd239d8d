"""Packages for node, installed once into a cache outside of the repository."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "hlas-tests"
QUIET = {"npm_config_loglevel": "error", "npm_config_update_notifier": "false"}


def find_node() -> str:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    return node


def install(package: str) -> Path:
    """The directory that has this package, `name@version`; without npm or network, skip."""
    directory = CACHE / package
    if not directory.exists():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("npm is not installed")
        CACHE.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=CACHE))
        command = [npm, "install", "--prefix", str(fresh), "--ignore-scripts", "--no-audit"]
        done = subprocess.run(
            [*command, "--no-fund", package],
            env={**os.environ, **QUIET},
            capture_output=True,
            check=False,
            timeout=150,
        )
        if done.returncode:
            shutil.rmtree(fresh)
            pytest.skip(f"npm cannot install {package}")
        try:
            fresh.rename(directory)
        except OSError:
            # Another process was faster.
            shutil.rmtree(fresh)
    return directory
