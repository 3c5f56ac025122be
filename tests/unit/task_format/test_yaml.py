"""Reading YAML from strangers."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.base.errors import TaskError
from runner.task_format.yamlfile import MAX_DEPTH, MAX_YAML_BYTES, parse_yaml
from tests.unit.task_format.samples import refusal, write


def test_what_people_write_is_read() -> None:
    """Comments, flow and block style, aliases and merges are YAML like any other."""
    text = b"# c\nbase: &b {x: 1, y: 2}\ncases:\n  - {<<: *b, y: 3}\n  - *b\n  - {<<: *b}\n"
    assert parse_yaml(text, "f") == {
        "base": {"x": 1, "y": 2},
        "cases": [{"x": 1, "y": 3}, {"x": 1, "y": 2}, {"x": 1, "y": 2}],
    }


BOMB = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
CHAIN = "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 5000))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "f: line 3: found the key 'a' a second time in one mapping, expected valid YAML"),
        ("x: {b: 1, b: 2}\n", "f: line 1: found the key 'b' a second time in one mapping, expected valid YAML"),
        (BOMB, "nodes once aliases are followed, expected at most 100000"),
        (CHAIN, f"found nesting of more than {MAX_DEPTH} levels"),
        ("&a [*a]", "found an alias to something that contains it"),
        ("[" * 5000, f"found nesting of more than {MAX_DEPTH} levels"),
        ("{a: " * 5000, f"found nesting of more than {MAX_DEPTH} levels"),
        ("!!python/object/apply:os.system [ls]", "could not determine a constructor for the tag"),
        ("a: [", "f: line 1: no valid YAML: while parsing a flow node: expected the node content, but found"),
        ("a: " + "9" * 6000, "f: no valid YAML: Exceeds the limit"),
        ("[a]: 1\n", "f: line 1: no valid YAML: while constructing a mapping: found unhashable key"),
        ("a: !!bool b\n", "f: no valid YAML: a value that is none of its tag"),
        ('a: !!int ""\n', "f: no valid YAML: a value that is none of its tag"),
        ("a: b\0", "f: no valid YAML: unacceptable character"),
        ("a: 1\n---\nb: 1\n", "no valid YAML: expected a single document in the stream: but found another document"),
        ("a: b: c\n", "f: line 1: no valid YAML: mapping values are not allowed here"),
        ("#" * (MAX_YAML_BYTES + 1), f"f: found {MAX_YAML_BYTES + 1} bytes, expected at most {MAX_YAML_BYTES}"),
    ],
)
def test_what_would_hurt_is_refused(text: str, message: str) -> None:
    """Duplicate keys, bombs, loops, tags and garbage end in a message with the file's name."""
    with pytest.raises(TaskError) as caught:
        parse_yaml(text.encode(), "f")
    assert str(caught.value).startswith("f: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "- 1\n", "just text\n"])
def test_a_task_yml_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    """An empty file and a list are no task. Of what is no UTF-8 the offset helps to find the byte."""
    message = refusal(write(tmp_path, text))
    assert message.startswith("adder/task.yml: found ")
    assert message.endswith(", expected a mapping")
    with pytest.raises(TaskError, match="f: found byte 0xff at offset 3, expected UTF-8"):
        parse_yaml(b"a: \xff", "f")
