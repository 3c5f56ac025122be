"""Writes `tests/fixtures/interfaces` anew: runs the tests that compare, and has them write what they find."""

from __future__ import annotations

import os
import sys

import pytest

from tests.unit.interfaces.fixtures import ROOT, WRITE

if __name__ == "__main__":
    os.environ[WRITE] = "1"
    sys.exit(pytest.main(["-q", *map(str, sorted(ROOT.glob("tests/*/*/test_interface_*.py")))]))
