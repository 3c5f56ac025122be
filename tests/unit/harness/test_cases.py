"""The cases file: what is accepted, what is refused and how it is said."""

from __future__ import annotations

import pytest

from tasks.harness.judge.cases import CaseError, combine, parse_cases


def test_union_of_the_grammars() -> None:
    """Integers, floats, booleans, words and tuples of integers in either bracket. Blank lines mean nothing."""
    line = (
        "m: 128; n: -3; eps: 1e-05; x2: 0.5; causal: True; off: false; kind: nvfp4_e2m1-x2; "
        "g: [96, 128]; h: (1,); e: []"
    )

    (case,) = parse_cases([line], global_seed=None)

    assert case.spec == line
    assert case.arguments == {
        "m": 128, "n": -3, "eps": 1e-5, "x2": 0.5, "causal": True, "off": False, "kind": "nvfp4_e2m1-x2",
        "g": (96, 128), "h": (1,), "e": (),
    }  # fmt: skip
    assert [case.spec for case in parse_cases(["", "size: 1;", "  ", "size: 2"], global_seed=None)] == [
        "size: 1;",
        "size: 2",
    ]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("size", "'size'"),
        ("size: ", "'size' is ''"),
        ("1size: 3", "'1size: 3'"),
        ("size: 1 2", "'1 2'"),
        ("size: [1, x]", "'[1, x]'"),
        ("size: [1, 2)", "'[1, 2)'"),
        ("size: 1; size: 2", "given twice"),
        ("size: __import__('os')", "__import__"),
        (";", "';'"),
    ],
)
def test_errors_name_line_and_finding(line: str, found: str) -> None:
    """A bad line is named by its number, with what was found."""
    with pytest.raises(CaseError, match="line 2") as error:
        parse_cases(["size: 1", line], global_seed=None)
    assert found in str(error.value)
    assert "expected" in str(error.value) or "twice" in str(error.value)


def test_global_seed_is_folded_in() -> None:
    """A case's seed changes under a global seed by the rule of the contract; a case without one is untouched."""
    first, second = parse_cases(["size: 1; seed: 5", "size: 2"], global_seed=7)

    assert first.arguments == {"size": 1, "seed": 5 + 12 * 13 // 2}
    assert first.spec == "size: 1; seed: 5"
    assert second.arguments == {"size": 2}
    assert combine(3, 4) == 3 + 7 * 8 // 2
