"""Scripts with the names and variables of the published pipeline; each calls one command of `kernelbook`."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from runner.base.errors import DataError

SCRIPTS: Final = {
    "filter_and_enrich_by_difficulty.py": "filter",
    "generate_prompts.py": "prompts",
    "filter_unique_best.py": "best",
    "analyze_seq_length.py": "lengths",
    "upload_datasets.py": "upload",
}
_TEXT: Final = '''\
"""`kernel-runner kernelbook {command}`, under the name of the published script, with its variables and options."""

import sys

from runner.cli import main

sys.argv[1:1] = ["kernelbook", "{command}"]
sys.exit(main())
'''


def write(directory: Path) -> list[Path]:
    """Write the scripts to `scripts/` in a folder.

    Raises:
        DataError: the folder cannot be written, or a file of such a name is there and is another.
    """
    paths = []
    for name, command in SCRIPTS.items():
        path, text = directory / "scripts" / name, _TEXT.format(command=command)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and path.read_text(encoding="utf-8") != text:
                raise DataError(f"{path} exists and is another file; nothing was overwritten")
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise DataError(f"cannot write {path}: {error.strerror}") from error
        paths.append(path)
    return paths
