"""Reads untrusted YAML: no tags, no duplicate keys, no alias bombs, bounded depth and size. Knows nothing of tasks.

A plain scalar is what YAML 1.1, which KernelBot reads, and YAML 1.2 both say. Where they differ, it is `Unclear`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from runner.base.errors import TaskError
from runner.base.marks import ENCODING

#: A task.yml with a thousand cases is about 50 KiB.
MAX_YAML_BYTES = 256 << 10
#: The most nodes once aliases are followed: the limit for alias bombs.
MAX_NODES = 100_000
MAX_DEPTH = 32

_YAML = "tag:yaml.org,2002:"
_UNCLEAR = "unclear"
#: Tag of a plain scalar -> its form; the first that fits counts. Dates stay texts: YAML's timestamps lose their offset.
_PLAIN = {
    f"{_YAML}null": r"~|null|Null|NULL|",
    f"{_YAML}bool": r"true|True|TRUE|false|False|FALSE",
    f"{_YAML}int": r"[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+",
    f"{_YAML}float": r"([-+]?(0|[1-9][0-9]*)\.[0-9]*|\.[0-9]+)([eE][-+][0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
    f"{_YAML}merge": r"<<",
    # Other words for true and false; octal, binary and sexagesimal numbers; digits with underscores; 1e3.
    _UNCLEAR: r"yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|[-+]?0[box][0-9a-fA-F_]+|"
    r"[-+]?([0-9][0-9_]*(:[0-5]?[0-9])*(\.[0-9_]*)?|\.[0-9][0-9_]*)([eE][-+]?[0-9]+)?",
}


@dataclass(frozen=True)
class Unclear:
    """A plain scalar that YAML 1.1 and 1.2 read differently."""

    text: str
    expected = "quotes around a text, true or false, or a number like 12, 0.5 or 1.0e-5"

    def __repr__(self) -> str:
        return self.text


class _Refused(yaml.MarkedYAMLError):
    """YAML that is not taken; its problem names what was found, where PyYAML's own are sentences."""


class _BoundedLoader(yaml.SafeLoader):
    """A SafeLoader that refuses deep nesting before Python's own stack overflows."""

    depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        """Compose one node, counting how deep it lies (PyYAML recurses here)."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            mark = None if parent is None else parent.start_mark
            raise _Refused(problem=f"nesting of more than {MAX_DEPTH} levels", problem_mark=mark)
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1


_BoundedLoader.yaml_implicit_resolvers = {None: [(tag, re.compile(rf"(?:{form})\Z")) for tag, form in _PLAIN.items()]}
_BoundedLoader.add_constructor(_UNCLEAR, lambda _, node: Unclear(node.value))


def parse_yaml(data: bytes, where: str) -> object:
    """Parse one YAML document.

    Args:
        data: the file's bytes.
        where: the file's name for messages.

    Raises:
        TaskError: not UTF-8, too large, not YAML, or one of the refused constructions; names file and line.
    """
    if len(data) > MAX_YAML_BYTES:
        raise TaskError(f"{where}: found {len(data)} bytes, expected at most {MAX_YAML_BYTES}")
    try:
        text = data.decode(ENCODING)
    except UnicodeDecodeError as error:
        raise TaskError(
            f"{where}: found byte {data[error.start]:#04x} at offset {error.start}, expected UTF-8"
        ) from error
    try:
        loader = _BoundedLoader(text)
    except yaml.YAMLError as error:
        raise TaskError(f"{where}: no valid YAML: {error}") from error
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _check(node, where)
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f"line {error.problem_mark.line + 1}: "
        if isinstance(error, _Refused):
            raise TaskError(f"{where}: {line}found {error.problem}, expected valid YAML") from error
        sentence = ": ".join(part for part in (error.context, error.problem) if part)
        raise TaskError(f"{where}: {line}no valid YAML: {sentence}") from error
    except LookupError as error:
        raise TaskError(f"{where}: no valid YAML: a value that is none of its tag, such as !!bool x") from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        # ValueError: a scalar that looks like a date or number and is none, such as 2024-13-45.
        raise TaskError(f"{where}: no valid YAML: {error}") from error
    finally:
        loader.dispose()


def _check(root: Node, where: str) -> None:
    """Refuse duplicate keys, and documents that aliases make too large, too deep or endless."""
    measured: dict[int, tuple[int, int]] = {}
    being_measured: set[int] = set()

    def measure(node: Node) -> tuple[int, int]:
        """Nodes and levels below and including a node, aliases followed."""
        measurement = measured.get(id(node))
        if measurement is not None:
            return measurement
        if id(node) in being_measured:
            raise _marked(node, "an alias to something that contains it")
        if isinstance(node, MappingNode):
            _check_keys(node)
        being_measured.add(id(node))
        children = [measure(child) for child in _children(node)]
        being_measured.remove(id(node))
        levels = 1 + max((levels for _, levels in children), default=0)
        if levels > MAX_DEPTH:
            raise _marked(node, f"nesting of more than {MAX_DEPTH} levels")
        measured[id(node)] = (1 + sum(nodes for nodes, _ in children), levels)
        return measured[id(node)]

    nodes, _ = measure(root)
    if nodes > MAX_NODES:
        raise TaskError(f"{where}: found {nodes} nodes once aliases are followed, expected at most {MAX_NODES}")


def _check_keys(node: MappingNode) -> None:
    seen: set[tuple[str, str]] = set()
    for key, _ in node.value:
        if isinstance(key, ScalarNode):
            if (key.tag, key.value) in seen:
                raise _marked(key, f"the key {key.value!r} a second time in one mapping")
            seen.add((key.tag, key.value))


def _children(node: Node) -> list[Node]:
    if isinstance(node, MappingNode):
        return [child for pair in node.value for child in pair]
    if isinstance(node, SequenceNode):
        return list(node.value)
    return []


def _marked(node: Node, what: str) -> _Refused:
    return _Refused(problem=what, problem_mark=node.start_mark)
