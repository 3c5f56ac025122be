"""`python -m tests.acceptance.attacks`: the table of docs/attacks.md, from the folders."""

from __future__ import annotations

import sys

from tests.acceptance.attacks.catalogue import table

sys.stdout.write(table())
