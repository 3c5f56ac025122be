"""The Debian package, as Debian's own checker sees it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def test_the_package_keeps_debians_rules(packages: Path) -> None:
    """No error and no warning but two: `--help` stands for a manual page, and no submission reads /opt."""
    if shutil.which("lintian") is None:
        pytest.skip("lintian is not installed (apt-get install lintian)")
    (package,) = packages.glob("*.deb")
    done = subprocess.run(
        [
            *("lintian", "--allow-root", "--fail-on=error,warning"),
            *("--suppress-tags=no-manual-page,dir-or-file-in-opt", str(package)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
