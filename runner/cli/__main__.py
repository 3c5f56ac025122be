"""`python -m runner.cli`: the same as the console script `kernel-runner`."""

import sys

from runner.cli import main

if __name__ == "__main__":
    sys.exit(main())
