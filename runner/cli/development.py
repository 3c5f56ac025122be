"""Another name of `python -m development`."""

from __future__ import annotations

import sys

from development.__main__ import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
