"""`python -m tests.acceptance.attacks`: the table of docs/attacks.md, from the folders.

`python -m tests.acceptance.attacks play` plays every attack before both evaluators and prints the table with what came
of them: the verdict, and how many times faster than its work it is taken to be.
"""

from __future__ import annotations

import contextlib
import sys

from tests.acceptance.attacks.catalogue import stated, table
from tests.acceptance.attacks.play import results
from tests.acceptance.judging.forked_judges import ForkedJudges

if sys.argv[1:] == ["play"]:
    with contextlib.closing(ForkedJudges()) as judges:
        sys.stdout.write(table(lambda attack: results(judges, attack)))
else:
    sys.stdout.write(table(stated))
