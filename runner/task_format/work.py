"""The work of a case: arithmetic expressions over its arguments (`flops`, `bytes`, `memory` … in runner.yml). Pure.

Expressions are parsed with `ast` and evaluated by walking the tree. No code is executed.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping, Sequence

from runner.task_format.model import Case

_MAX_CHARS = 500
_MAX_BITS = 4096

Number = int | float


class WorkError(ValueError):
    """An expression that is no arithmetic over a case's arguments. The message is `found …, expected …`."""


def _dot(*lists: tuple[int, ...]) -> int:
    """The sum of the products of the lists' first items, their second, and so on."""
    if len({len(items) for items in lists}) > 1:
        raise WorkError(f"found dot of {', '.join(map(str, lists))}, expected lists of one length")
    return sum(math.prod(items) for items in zip(*lists, strict=True))


_BINARY: Mapping[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Number], Number]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_FUNCTIONS: Mapping[str, Callable[..., Number]] = {
    "min": min,
    "max": max,
    "ceil": math.ceil,
    "floor": math.floor,
    "log2": math.log2,
    "sqrt": math.sqrt,
}
#: Functions of the items of one list argument; `dot` takes several lists.
_LIST_FUNCTIONS: Mapping[str, Callable[..., Number]] = {"sum": sum, "prod": math.prod, "len": len, "dot": _dot}

_EXPECTED = (
    "arithmetic (+ - * / // % **, parentheses, min max ceil floor log2 sqrt, sum prod len of a list, "
    "dot of lists of one length) over the arguments of the case"
)


def work(expression: str, case: Case) -> float:
    """The value of an expression for one case, in the expression's own unit (operations, or bytes).

    Raises:
        WorkError: not arithmetic, an unknown argument, or a result that is not a positive finite number.
    """
    if len(expression) > _MAX_CHARS:
        raise WorkError(f"found {len(expression)} characters, expected at most {_MAX_CHARS}")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        value = float(_number(tree.body, case))
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError, TypeError) as error:
        if isinstance(error, WorkError):
            raise
        raise WorkError(f"found {expression!r} ({error}), expected {_EXPECTED}") from error
    if not math.isfinite(value) or value <= 0:
        raise WorkError(f"found {expression!r}, which is {value} for {dict(case)}, expected a positive number")
    return value


def _number(node: ast.expr, case: Case) -> Number:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name):
            argument = _argument(name, case)
            if not isinstance(argument, int | float):
                raise WorkError(f"found the argument {name!r} = {argument!r}, expected a number in this place")
            return argument
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](_number(operand, case))
        case ast.BinOp(op=op, left=left, right=right) if type(op) in _BINARY:
            return _binary(op, _number(left, case), _number(right, case))
        case ast.Call(func=ast.Name(id=function), args=[_, *_] as names, keywords=[]) if _takes_lists(function, names):
            return _LIST_FUNCTIONS[function](*(_items(function, ast.unparse(name), case) for name in names))
        case ast.Call(func=ast.Name(id=function), args=arguments, keywords=[]) if function in _FUNCTIONS:
            return _FUNCTIONS[function](*(_number(argument, case) for argument in arguments))
        case _:
            raise WorkError(f"found {ast.unparse(node)!r}, expected {_EXPECTED}")


def _items(function: str, name: str, case: Case) -> tuple[int, ...]:
    items = _argument(name, case)
    if not isinstance(items, list | tuple):
        raise WorkError(f"found {function}({name}) with {name} = {items!r}, expected a list argument")
    return tuple(items)


def _takes_lists(function: str, names: Sequence[ast.expr]) -> bool:
    one = len(names) == 1 or function == "dot"
    return function in _LIST_FUNCTIONS and one and all(isinstance(name, ast.Name) for name in names)


def _binary(op: ast.operator, left: Number, right: Number) -> Number:
    if isinstance(op, ast.Pow) and isinstance(left, int) and isinstance(right, int):
        # 9**9**9 would use a processor and its memory for hours.
        bits = left.bit_length() * abs(right)
        if bits > _MAX_BITS:
            raise WorkError(f"found a power of {bits} bits, expected at most {_MAX_BITS}")
    return _BINARY[type(op)](left, right)


def _argument(name: str, case: Case) -> object:
    if name not in case:
        raise WorkError(f"found the name {name!r}, expected one of the case's arguments: {', '.join(case) or 'none'}")
    return case[name]
