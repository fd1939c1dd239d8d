"""Collecting the tests always gives the same names.

pytest-xdist refuses to run when the lists of its processes differ. Fails with a parameter that
holds the time of day.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def test_names_are_stable(request: pytest.FixtureRequest) -> None:
    """Names do not depend on the process, the time or the order of sets."""
    arguments = ["-m", "pytest", "--collect-only", "--quiet", "--no-cov", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, *arguments, str(TESTS)],
        capture_output=True,
        text=True,
        check=True,
        cwd=request.config.rootpath,
        env={**os.environ, "PYTHONHASHSEED": "4242"},
    )
    theirs = [line for line in done.stdout.splitlines() if "::" in line]
    ours = [item.nodeid for item in request.session.items]
    known = set(theirs)
    assert [name for name in ours if name not in known] == []
    if len(ours) == len(theirs):
        assert ours == theirs
