"""Expressions for the work of a case."""

from __future__ import annotations

import pytest

from runner.task_format import work
from runner.task_format.work import WorkError

CASE = {"m": 7, "k": 16, "causal": True, "kind": "cold", "shape": [2, 3, 4], "n": [5, 6, 7], "g": [1]}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2 * m * k", 224),
        ("m * k / 2 + m", 63),
        ("m // 2 + m % 2", 4),
        ("-(-m)", 7),
        ("m ** 2", 49),
        ("k ** 0.5", 4),
        ("2 * m / (1 + causal)", 7),
        ("max(m, k) + min(m, 3)", 19),
        ("ceil(m / 2) + floor(m / 2)", 7),
        ("log2(k) + sqrt(k)", 8),
        ("prod(shape) + sum(shape) + len(shape)", 36),
        ("dot(shape, n)", 56),
        ("2 * dot(shape, n, n) - dot(g)", 2 * (50 + 108 + 196) - 1),
        (" m\t", 7),
    ],
)
def test_arithmetic_over_arguments(expression: str, value: float) -> None:
    """Every operation and function the documentation promises."""
    assert work(expression, CASE) == value


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("j", "found the name 'j', expected one of the case's arguments: m, k, causal, kind, shape, n, g"),
        ("kind", "found the argument 'kind' = 'cold', expected a number in this place"),
        ("shape * 2", "found the argument 'shape' = [2, 3, 4], expected a number in this place"),
        ("sum(m)", "found sum(m) with m = 7, expected a list argument"),
        ("dot(shape, m)", "found dot(m) with m = 7, expected a list argument"),
        ("dot(shape, g)", "found dot of (2, 3, 4), (1,), expected lists of one length"),
        ("dot()", "expected arithmetic"),
        ("dot(shape, n + n)", "expected arithmetic"),
        ("sum(shape, n)", "expected arithmetic"),
        ("__import__('os').system('ls')", "expected arithmetic"),
        ("m.real", "expected arithmetic"),
        ("shape[0]", "expected arithmetic"),
        ("'a' * m", "expected arithmetic"),
        ("max(m, key=len)", "expected arithmetic"),
        ("m << 3", "expected arithmetic"),
        ("m *", "expected arithmetic"),
        ("", "expected arithmetic"),
        ("m / 0", "division by zero"),
        ("9 ** 9 ** 9", "found a power of"),
        ("2.0 ** 9999", "expected arithmetic"),
        ("(-m) ** 0.5", "expected arithmetic"),
        ("log2(0)", "expected arithmetic"),
        ("max()", "expected arithmetic"),
        ("m - m", "expected a positive number"),
        ("0 - m", "expected a positive number"),
        ("(" * 300 + "m" + ")" * 190, "expected arithmetic"),
        ("m" * 501, "found 501 characters, expected at most 500"),
    ],
)
def test_anything_else_is_refused(expression: str, message: str) -> None:
    """Nothing but arithmetic is evaluated, and the result is a positive number."""
    with pytest.raises(WorkError) as caught:
        work(expression, CASE)
    assert message in str(caught.value)
