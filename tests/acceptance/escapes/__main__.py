"""`python -m tests.acceptance.escapes`: the table of docs/attacks.md, from the cases."""

from __future__ import annotations

import sys

from tests.acceptance.escapes.case import all_cases
from tests.acceptance.escapes.table import table

sys.stdout.write(table(all_cases()))
