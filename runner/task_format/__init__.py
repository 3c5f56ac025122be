"""Task definitions: KernelBot's `task.yml` and our `runner.yml`, from a folder, an archive or a database row.

Owns the meaning of every key and the safe reading of untrusted folders and archives. Must not run or store anything.
Every refusal is a `TaskError` with lines of the form `<file>: <key>: found …, expected …`.
"""

from runner.task_format.load import load, load_folder
from runner.task_format.stored import extra_to_stored, from_stored, to_stored, unknown_keys
from runner.task_format.work import work

__all__ = [
    "extra_to_stored",
    "from_stored",
    "load",
    "load_folder",
    "to_stored",
    "unknown_keys",
    "work",
]
