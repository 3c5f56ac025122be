"""Makes docs/configuration.md of the configuration's model; `python -m tests.unit.config.page` writes the page.

The introduction stands here. Everything about a key stands in `runner.base.config.Config`, of guests in
`runner.extras.config.SiteConfig`: its type, default, bounds, examples in the field, its description in the string below
the field.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from runner.base.config import Config
from runner.extras.config import SiteConfig

ROOT: Final = Path(__file__).resolve().parents[3]
PAGE: Final = ROOT / "docs" / "configuration.md"
#: What stands in the place of a default that the model does not hold.
COMPUTED: Final[Mapping[str, str]] = {"host_name": "the system's host name"}
#: An example that is longer stands in a block of its own.
INLINE: Final = 70
HEAD: Final = """# Configuration

A complete `/etc/kernel-runner/config.toml` for a host with accelerators of known GPU types:

```toml
database_url = "postgresql://runner@db.example/kernelbot"
eval_python = "/opt/kernel-runner/eval/bin/python"
reserve_cpus = 8
```

`--config` or `KERNEL_RUNNER_CONFIG` names another file. The order, highest first:

1. a `KERNEL_RUNNER_<KEY>` that is not empty: `KERNEL_RUNNER_LEASE_S=60`
2. `DATABASE_URL` for `database_url`, `DOCKER_HOST` for `docker_host`
3. for `database_url`, the credential of that name that systemd hands to the service (`LoadCredential=`)
4. the file
5. for `database_url`, the content of `database_url_file`
6. the default

Durations are seconds and may have a fraction. The file of another key `NAME_file` holds `NAME` alone; systemd's
credential `NAME` goes before it. An unknown key or `KERNEL_RUNNER_` variable is an error.

A new value counts after a restart, which loses no run (`max_attempts` and the four keys after it: after
`kernel-runner migrate`, for all hosts): `kernel-runner check`, then `systemctl restart kernel-runner`.

## Keys

"""


def page() -> str:
    """docs/configuration.md as it should be.

    Raises:
        ValueError: a key has no description or no example.
    """
    told = {**descriptions(Config), **descriptions(SiteConfig)}
    return HEAD + "\n".join(_section(key, field, told.get(key, "")) for key, field in SiteConfig.model_fields.items())


def examples(key: str) -> Sequence[str]:
    """A key's examples, each as a part of a configuration file."""
    return [f"{key} = {toml(example)}" for example in SiteConfig.model_fields[key].examples or ()]


def toml(value: object) -> str:
    """A value as TOML writes it; tables in a list have a line each."""
    match value:
        case bool() | str() | int():
            return json.dumps(value)
        case float():
            return f"{value:g}"
        case Path():
            return json.dumps(str(value))
        case dict():
            return "{ " + ", ".join(f"{key} = {toml(entry)}" for key, entry in value.items()) + " }"
        case [dict(), *_]:
            return "[\n" + "".join(f"  {toml(entry)},\n" for entry in value) + "]"
        case list() | tuple():
            return "[" + ", ".join(map(toml, value)) + "]"
    raise ValueError(f"{value!r} has no spelling in TOML")


def descriptions(model: type[BaseModel]) -> Mapping[str, str]:
    """The string below each field. Read from the source: pydantic would do that at every start of the program."""
    (tree,) = ast.parse(inspect.getsource(model)).body
    if not isinstance(tree, ast.ClassDef):
        raise TypeError(f"{model} is no class")
    return {
        field.target.id: inspect.cleandoc(below.value.value)
        for field, below in pairwise(tree.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
    }


def _section(key: str, field: FieldInfo, description: str) -> str:
    shown = examples(key)
    if not description or not shown:
        raise ValueError(f"{key}: expected a description below its field, and `examples=`")
    text = [f"### `{key}`", description]
    if key in SiteConfig.tables:
        text += ["", *_fields(key.removesuffix("s"), SiteConfig.tables[key])]
    inline = [f"Example: `{shown[0]}`."] if len(shown) == 1 and len(shown[0]) <= INLINE else []
    if not inline:
        for example in shown:
            text += ["", "```toml", example, "```"]
    # A default that is a number shows how one is written.
    shows_itself = isinstance(field.default, int | float)
    facts = [*([] if shows_itself else inline), f"Default: {_default(key, field)}.", *_bounds(field)]
    return "\n".join([*text, "", " ".join(facts), ""])


def _fields(name: str, model: type[BaseModel]) -> Iterator[str]:
    yield f"Each {name} has:"
    yield ""
    told = descriptions(model)
    for key, field in model.model_fields.items():
        yield f"- `{key}`{' (required)' if field.is_required() else ''}: {told[key]}"


def _default(key: str, field: FieldInfo) -> str:
    if key in COMPUTED:
        return COMPUTED[key]
    default = field.get_default(call_default_factory=False)
    return "none" if default is None else f"`{toml(default)}`"


def _bounds(field: FieldInfo) -> Iterator[str]:
    low = next((entry for entry in field.metadata if isinstance(entry, Ge | Gt)), None)
    high = next((entry.le for entry in field.metadata if isinstance(entry, Le)), None)
    if isinstance(low, Ge):
        yield f"At least {low.ge:g}." if high is None else f"From {low.ge:g} to {high:g}."
    elif low is not None:
        yield f"More than {low.gt:g}." if high is None else f"More than {low.gt:g}, at most {high:g}."


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
