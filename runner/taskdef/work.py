"""The work of a case: arithmetic expressions over its arguments (`flops`, `bytes` in runner.yml). Pure.

Expressions are parsed with `ast` and evaluated by walking the tree; nothing is ever executed.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping

from runner.taskdef.model import Case

_MAX_CHARS = 500
_MAX_BITS = 4096

Number = int | float

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
#: Of numbers, and of the list arguments' items.
_FUNCTIONS: Mapping[str, Callable[..., Number]] = {
    "min": min,
    "max": max,
    "ceil": math.ceil,
    "floor": math.floor,
    "log2": math.log2,
    "sqrt": math.sqrt,
}
_LIST_FUNCTIONS: Mapping[str, Callable[[tuple[int, ...]], Number]] = {"sum": sum, "prod": math.prod, "len": len}

_EXPECTED = (
    "arithmetic (+ - * / // % **, parentheses, min max ceil floor log2 sqrt, sum prod len of a list) "
    "over the arguments of the case"
)


class WorkError(ValueError):
    """An expression that is no arithmetic over a case's arguments; the message says what was found and expected."""


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
        case ast.Call(func=ast.Name(id=function), args=[ast.Name(id=name)], keywords=[]) if function in _LIST_FUNCTIONS:
            items = _argument(name, case)
            if not isinstance(items, list | tuple):
                raise WorkError(f"found {function}({name}) with {name} = {items!r}, expected a list argument")
            return _LIST_FUNCTIONS[function](tuple(items))
        case ast.Call(func=ast.Name(id=function), args=arguments, keywords=[]) if function in _FUNCTIONS:
            return _FUNCTIONS[function](*(_number(argument, case) for argument in arguments))
        case _:
            raise WorkError(f"found {ast.unparse(node)!r}, expected {_EXPECTED}")


def _binary(op: ast.operator, left: Number, right: Number) -> Number:
    if isinstance(op, ast.Pow) and isinstance(left, int) and isinstance(right, int):
        # 9**9**9 would keep a processor and its memory busy for hours.
        bits = left.bit_length() * abs(right)
        if bits > _MAX_BITS:
            raise WorkError(f"found a power of {bits} bits, expected at most {_MAX_BITS}")
    return _BINARY[type(op)](left, right)


def _argument(name: str, case: Case) -> object:
    if name not in case:
        raise WorkError(f"found the name {name!r}, expected one of the case's arguments: {', '.join(case) or 'none'}")
    return case[name]
