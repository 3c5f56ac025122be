"""Arguments that the wire has no kind for, and the bag of attributes of KernelBook's rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

from runner.extras.trainers.inside.shared.module_values import decode_value, encode_value, plain
from runner.extras.trainers.inside.shared.paritybench import Config, install
from tasks.harness.shared.values import Unsupported, pack, unpack


@pytest.mark.parametrize(
    "value",
    [
        Config(hidden=4, act="relu", inner=Config(a=[1, 2])),
        torch.nn.ReLU,
        torch.nn.functional.gelu,
        torch.relu,
        float,
        slice(1, None, 2),
        {1, 2},
        {1: "a", (2, 3): "b"},
        {"a": [1, (2.5, None)], "d": torch.float16},
        SimpleNamespace(hidden=4, act=torch.nn.ReLU, inner=SimpleNamespace(sizes=[1, 2])),
    ],
)
def test_values_arrive_as_they_were(value: object) -> None:
    """Values arrive as they were."""
    packed = pack(encode_value(value))
    assert decode_value(unpack(json.loads(json.dumps(packed.tree)), packed.storages)) == value


@pytest.mark.parametrize("value", [lambda x: x, json.dumps, pytest.Item])
def test_code_from_elsewhere_is_refused(value: object) -> None:
    """Code from elsewhere is refused."""
    with pytest.raises(Unsupported, match="cannot be handed"):
        encode_value(value)


def test_only_names_below_torch_are_looked_up() -> None:
    """Only names below torch are looked up."""
    mark = next(iter(encode_value(Config())))  # type: ignore[call-overload]  # a dict
    with pytest.raises(Unsupported, match=r"os\.system"):
        decode_value({mark: "name", "name": "os.system"})


def test_the_helpers_can_be_imported() -> None:
    """The helpers can be imported."""
    install()
    from _paritybench_helpers import _mock_config  # type: ignore[import-not-found]  # installed above

    config = _mock_config(a=1)
    assert (config.a, config["a"], config.get("b", 2), "a" in config, dict(**config)) == (1, 1, 2, True, {"a": 1})
    assert not hasattr(config, "b")


def test_named_tuples_become_tuples() -> None:
    """Named tuples become tuples."""
    found = plain(torch.max(torch.ones(2, 2), 0))
    assert type(found) is tuple
    assert len(found) == 2


@dataclass
class _Plain:
    a: Any
    b: Any = 2


@dataclass(frozen=True, slots=True)
class _Frozen:
    a: Any
    b: Any = 2


class _Named(NamedTuple):
    a: Any
    b: Any = 2


@pytest.mark.parametrize("inner", [_Plain, _Frozen, lambda a: SimpleNamespace(a=a, b=2), lambda a: Config(a=a, b=2)])
@pytest.mark.parametrize("outer", [_Plain, _Frozen, lambda a: SimpleNamespace(a=a, b=2), lambda a: {"a": a, "b": 2}])
def test_the_attributes_of_an_output_count(outer: Any, inner: Any) -> None:  # noqa: ANN401 - any class
    """Of dataclasses and namespaces; those of a named tuple are its items."""
    assert plain(outer([inner(1.5)])) == {"a": [{"a": 1.5, "b": 2}], "b": 2}
    assert plain(_Named(inner(1.5))) == ({"a": 1.5, "b": 2}, 2)
