"""Values as trees and bytes: round trips of everything supported, refusal of everything else, hostile descriptors."""

from __future__ import annotations

import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tasks.harness.shared.arenas import ALIGN_BYTES, Arena
from tasks.harness.shared.values import (
    DTYPES,
    Layout,
    Outgoing,
    Packed,
    Placed,
    Snapshot,
    Unsupported,
    identity,
    map_tensors,
    pack,
    regions,
    signature,
    tensors_of,
    unpack,
)
from tasks.harness.shared.wire import WireViolation


def _cross(packed: Packed) -> tuple[Any, list[torch.Tensor], Arena, list[Placed]]:
    """Hand a packed value over as judge and worker do."""
    placed, size = packed.place()
    arena = Arena.create(size)
    packed.write(arena, placed)
    views = [arena.bytes_at(place.offset, place.nbytes) for place in placed]
    return unpack(packed.tree, views), views, arena, placed


def _return(value: object, inputs: dict[int, int], arena: Arena, placed: list[Placed]) -> Snapshot:
    """Hand an output back as worker and judge do."""
    outgoing = Outgoing.describe(value, inputs)
    with Arena.create(outgoing.nbytes) as output_arena:
        outgoing.copy_to(output_arena)
        found = regions(outgoing.tree, placed=placed, output_bytes=output_arena.size)
        copies = [(arena if r.inputs else output_arena).bytes_at(r.start, r.nbytes).clone() for r in found]
    return Snapshot(outgoing.tree, copies)


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_every_dtype_survives_both_ways(name: str) -> None:
    """A tensor of each dtype arrives with the same bytes, as input and as output."""
    raw = torch.randint(0, 2 if name == "bool" else 256, (3 * 5 * 16,), dtype=torch.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch calls complex32 experimental
        original = raw.view(DTYPES[name])
        arrived, _, arena, placed = _cross(pack(original))
        returned = _return(arrived, {}, arena, placed).value()

    for item in (arrived, returned):
        assert isinstance(item, torch.Tensor)
        assert (item.dtype, item.shape) == (original.dtype, original.shape)
        assert torch.equal(item.view(torch.uint8), raw)


def test_structure_and_scalars_survive() -> None:
    """Nested containers, numbers (also the odd floats), text, None, dtypes, devices and sizes."""
    value = {
        "a": (1, -2, 2**100, True, None, "text"),
        "b": [1.5, float("inf"), -0.0],
        "c": {"dtype": torch.float8_e5m2, "device": torch.device("cpu"), "size": torch.Size([2, 3])},
    }

    arrived, _, arena, placed = _cross(pack(value))
    returned = _return(arrived, {}, arena, placed).value()

    assert arrived == value
    assert returned == value
    assert type(arrived["c"]["size"]) is torch.Size
    named = _return(torch.ones(2, 3).max(dim=1), {}, arena, placed).value()
    assert isinstance(named, tuple)
    assert named[0].tolist() == [1.0, 1.0]
    nan = _cross(pack(float("nan")))[0]
    assert nan != nan  # noqa: PLR0124 that is what NaN is


def test_aliases_strides_offsets_gradients_and_conjugates_survive() -> None:
    """Views of one storage stay views of one storage, empty tensors and scalars stay what they are."""
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    value = (base, base[1:, ::2], base.t(), torch.empty(0, 3), torch.tensor(7), torch.ones(1).expand(5))
    weight, conjugate = torch.ones(3, requires_grad=True), torch.tensor([1 + 2j]).conj()

    (arrived, its_weight, its_conjugate), *_ = _cross(pack((value, weight, conjugate)))

    for before, after in zip(value, arrived, strict=True):
        assert torch.equal(before, after)
        assert before.stride() == after.stride()
    arrived[0][1, 2] = -1.0
    assert arrived[1][0, 1] == -1.0
    assert arrived[2][2, 1] == -1.0
    assert base[1, 2] == 8.0
    assert (its_weight.requires_grad, its_weight.is_leaf) == (True, True)
    assert torch.equal(its_conjugate, conjugate.resolve_conj())


@pytest.mark.parametrize("value", [object(), {1: 2}, torch.eye(2).to_sparse(), b"bytes", 2**200, lambda: 0])
def test_other_values_are_refused(value: object) -> None:
    """What cannot travel is refused by name as an input, and named in an output."""
    with pytest.raises(Unsupported):
        pack(value)
    assert Outgoing.describe([value], {}).tree["items"][0]["t"] == "opaque"


def _freed() -> torch.Tensor:
    item = torch.ones(3)
    item.untyped_storage().resize_(0)
    return item


def _fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.ones(3)


#: Tensors of a usual layout whose elements do not lie in memory, or that have no shape.
BODILESS = {
    "nested": lambda: torch.nested.as_nested_tensor([torch.ones(2), torch.ones(3)]),
    "jagged": lambda: torch.nested.as_nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "meta": lambda: torch.empty(3, device="meta"),
    "fake": _fake,
    "freed": _freed,
    "zeros": lambda: torch._efficientzerotensor(3),
    "masked": lambda: torch.masked.masked_tensor(torch.ones(3), torch.ones(3) > 0),
    "lazy": lambda: torch.nn.LazyLinear(2).weight,
}


@pytest.mark.parametrize("name", BODILESS)
@pytest.mark.filterwarnings("ignore")
def test_tensors_without_bytes_are_refused(name: str) -> None:
    """As inputs by a sentence, before anything reads them; no output of that kind has bytes to read."""
    with pytest.raises(Unsupported, match=r"nested tensor|without bytes"):
        pack((torch.ones(2), {"x": BODILESS[name]()}))  # type: ignore[no-untyped-call]  # torch lacks it
    if name in ("nested", "jagged", "meta", "freed", "zeros"):
        assert Outgoing.describe([BODILESS[name]()], {}).tree["items"][0]["t"] == "opaque"  # type: ignore[no-untyped-call]  # torch lacks it


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "int64", "float16", "float32", "float64"])
def test_numbers_of_numpy_are_numbers(dtype: str) -> None:
    """Both ways; such numbers as Python has none for stay what they are."""
    number = np.dtype(dtype).type(1)
    arrived, _, arena, placed = _cross(pack({"scale": number, "more": [number]}))
    returned = _return((number, number), {}, arena, placed).value()
    assert arrived == {"scale": number.item(), "more": [number.item()]}
    assert returned == (number.item(), number.item())
    assert type(arrived["scale"]) is type(number.item())
    for other in (np.complex64(1), np.longdouble(1), np.datetime64("2026-01-01"), np.bytes_(b"x"), np.ones(1)):
        with pytest.raises(Unsupported):
            pack(other)


class Share:
    """As a task's reference.py may define it: its objects travel, the class does not."""

    def __init__(self) -> None:
        self.count = 3
        self.x = torch.arange(6.0).reshape(2, 3)
        self.inner = {"dtype": torch.float16, "view": self.x[:, 1]}


def test_objects_of_the_tasks_own_classes_arrive_as_records() -> None:
    """Their attributes travel like everything else, aliases included; whose class it is decides, slots or none.

    A worker may not return any: its own code describes them as opaque, and a forged one is no output.
    """
    share, slotted = Share(), Slotted(torch.ones(2))

    (arrived, number, its_slotted), views, *_ = _cross(pack((share, 7, slotted), modules=OWN))

    assert type(arrived) is type(its_slotted) is SimpleNamespace
    assert (arrived.count, arrived.inner["dtype"], number) == (3, torch.float16, 7)
    assert (its_slotted.x.tolist(), its_slotted.n) == ([1.0, 1.0], 3)
    assert torch.equal(arrived.x, share.x)
    arrived.x[0, 1] = 9.0
    assert arrived.inner["view"][0] == 9.0
    assert len(views) == 2
    for other in (share, slotted):
        with pytest.raises(Unsupported, match=f"a {type(other).__name__} cannot"):
            pack(other, modules=frozenset({"reference"}))
    assert Outgoing.describe(share, {}).tree == {"t": "opaque", "type": "Share"}
    for kind in ("record", "named"):
        with pytest.raises(WireViolation):
            regions({"t": kind, "items": []}, placed=[], output_bytes=0)


@dataclass(frozen=True, slots=True)
class Slotted:
    """An object without a dictionary."""

    x: torch.Tensor
    n: int = 3


OWN = frozenset({__name__})


class _Pair(NamedTuple):
    one: Any
    two: Any


class _OwnList(list[Any]):
    """A list of a class of its own."""


class _OwnTuple(tuple[Any, ...]):
    """A tuple of a class of its own."""

    __slots__ = ()


class _OwnDict(dict[str, Any]):
    """A dict of a class of its own."""


#: Makes a container of two values, of each kind in which arguments come.
CONTAINERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "tuple": lambda *values: values,
    "own tuple": lambda *values: _OwnTuple(values),
    "named tuple": _Pair,
    "list": lambda *values: [*values],
    "own list": lambda *values: _OwnList(values),
    "dict": lambda one, two: {"one": one, "two": two},
    "own dict": lambda one, two: _OwnDict(one=one, two=two),
    "ordered dict": lambda one, two: OrderedDict(one=one, two=two),
    "default dict": lambda one, two: defaultdict(int, one=one, two=two),
    "namespace": lambda one, two: SimpleNamespace(one=one, two=two),
}


@pytest.mark.parametrize("modules", [OWN, frozenset[str]()], ids=["the task's own", "another's"])
@pytest.mark.parametrize("kind", [kind for kind in CONTAINERS if kind != "namespace"])
def test_kinds_of_containers_arrive_with_all_that_they_hold(kind: str, modules: frozenset[str]) -> None:
    """As what they are kinds of; names of a tuple stay in an input, also within other values."""
    value = CONTAINERS[kind](torch.arange(3.0), 7)
    arrives: Any = next(each for each in (dict, list, tuple) if isinstance(value, each))

    (arrived,), _, arena, placed = _cross(pack([value], modules=modules))
    returned: Any = _return(value, {}, arena, placed).value()

    assert isinstance(arrived, arrives)
    assert type(returned) is arrives
    for each in (arrived, returned):
        assert repr(list(each)) == repr(list(value))
        if arrives is dict:
            assert repr(list(each.values())) == repr(list(value.values()))
    if isinstance(value, _Pair):
        assert torch.equal(arrived.one, value.one)
        assert arrived._fields == value._fields


def test_deep_nesting_is_refused() -> None:
    """A list in a list in a list … ends somewhere."""
    value: list[Any] = []
    for _ in range(100):
        value = [value]
    with pytest.raises(Unsupported, match="nested"):
        pack(value)
    regions(Outgoing.describe(value, {}).tree, placed=[], output_bytes=0)


def test_returned_input_is_not_copied() -> None:
    """An input buffer, or a contiguous part of it, comes back as a reference to the judge's own memory.

    A tensor of a subclass is computed in the worker: the judge sees a plain one.
    """

    class Lazy(torch.Tensor):
        pass

    arrived, views, arena, placed = _cross(pack((torch.zeros(4, 4), torch.zeros(8))))
    inputs = {identity(view): number for number, view in enumerate(views)}
    arrived[0].fill_(3.0)
    arrived[1][2:5] = 5.0
    output = (arrived[0], arrived[1][2:5], arrived[0].t(), arrived[1].as_subclass(Lazy))

    outgoing = Outgoing.describe(output, inputs)
    returned = _return(output, inputs, arena, placed).value()

    assert [node["at"][0] for node in outgoing.tree["items"][:3]] == [0, 1, -1]
    assert isinstance(returned, tuple)
    assert torch.equal(returned[0], torch.full((4, 4), 3.0))
    assert torch.equal(returned[1], torch.full((3,), 5.0))
    assert type(returned[3]) is torch.Tensor
    assert torch.equal(returned[3], arrived[1])


def _node(**changes: object) -> dict[str, object]:
    return {"t": "tensor", "dtype": "float32", "shape": [4], "device": "cpu", "at": [-1, 0]} | changes


def _deep() -> object:
    tree: dict[str, object] = {"t": "none"}
    for _ in range(1000):
        tree = {"t": "list", "items": [tree]}
    return tree


@pytest.mark.parametrize(
    "tree",
    [
        None,
        [],
        {"t": "pickle"},
        {"t": ["tensor"]},
        _node(dtype="float33"),
        _node(dtype=None),
        _node(shape=[-1]),
        _node(shape=[1.0]),
        _node(shape=[True]),
        _node(shape="4"),
        _node(shape=[1 << 47, 1 << 47]),
        _node(shape=[1] * 65),
        _node(shape=[1025]),
        _node(at=[-1, -4]),
        _node(at=[-1, 4081]),
        _node(at=[-2, 0]),
        _node(at=[1, 0]),
        _node(at=[0, 4]),
        _node(at=[0]),
        _node(at=["0", 0]),
        _node(at=[0, True]),
        _node(device="cuda:7"),
        _node(device="meta"),
        {"t": "list", "items": {}},
        {"t": "list", "items": [{"t": "none"}] * 20_000},
        {"t": "dict", "items": [["a"]]},
        {"t": "dict", "items": [[1, {"t": "none"}]]},
        {"t": "dict", "items": [["a", {"t": "none"}], ["a", {"t": "none"}]]},
        {"t": "int", "v": True},
        {"t": "int", "v": "1"},
        {"t": "float", "v": 1.0},
        {"t": "float", "v": "0x1p99999"},
        {"t": "float", "v": "zero"},
        {"t": "str", "v": 1},
        {"t": "dtype", "v": "object"},
        {"t": "device", "v": "cuda:99"},
        {"t": "size", "items": [{"t": "str", "v": "a"}]},
        {"t": "opaque"},
        {"t": "tensor", "dtype": "int8", "shape": [0, 1 << 47, 1 << 47], "device": "cpu", "at": [-1, 0]},
        _deep(),
    ],
)
def test_hostile_descriptors_are_refused(tree: object) -> None:
    """No tree that the worker's own code would not send gets past the judge."""
    with pytest.raises(WireViolation):
        regions(tree, placed=[Placed(offset=0, nbytes=16)], output_bytes=4096)


def test_poison_differs_every_time_and_an_arena_ends_where_it_ends() -> None:
    """It is random, so an untouched output cannot be told by its bytes, and covers every page; nothing lies beyond."""
    with Arena.create(200_000) as one, Arena.create(200_000) as other:
        one.poison()
        other.poison()
        assert not torch.equal(one.bytes_at(0, 4096), other.bytes_at(0, 4096))
        for start in range(0, one.size, 4096):
            assert one.bytes_at(start, 4096).any()
        with pytest.raises(ValueError, match="not inside"):
            one.bytes_at(one.size - 1, 2)


def test_signature_ignores_contents() -> None:
    """Equal structures have equal signatures; another shape, dtype or container has another."""
    value = (torch.zeros(3), [1])
    assert signature(value) == signature((torch.ones(3), [2]))
    assert signature(value) != signature((torch.zeros(4), [1]))
    assert signature(value) != signature((torch.zeros(3, dtype=torch.float64), [1]))
    assert signature(value) != signature([torch.zeros(3), [1]])
    assert Snapshot(pack(value).tree, []).signature == signature(value)


def _layout(value: object) -> Layout | None:
    return Layout.of(Outgoing.describe(value, {}).tree)


@pytest.mark.parametrize(
    ("value", "sizes"),
    [
        (torch.ones(3), (12,)),
        (torch.ones(5, 3).t(), (60,)),
        (torch.empty(0, 4), (0,)),
        (torch.tensor(1, dtype=torch.float16), (2,)),
        ((torch.ones(200), [torch.ones(1), None]), (800, 4)),
        ({"b": torch.ones(2), "a": (torch.ones(1, dtype=torch.int64), {})}, (8, 8)),
        (None, ()),
        ([], ()),
        # What says more than bytes could differ in the next output, so its description must travel again.
        (3, None),
        ((torch.ones(3), 2.5), None),
        ({"a": [torch.ones(3), "text"]}, None),
        ([True], None),
        ((torch.ones(1), torch.float16), None),
        ((torch.ones(1), torch.device("cpu")), None),
        (torch.Size([3]), None),
        ((torch.ones(1), {3}), None),
        (torch.eye(2).to_sparse(), None),
    ],
)
def test_an_output_of_plain_tensors_has_a_layout(value: object, sizes: tuple[int, ...] | None) -> None:
    """Containers, dtypes and shapes, and the bytes of each tensor in the order of the tree."""
    layout = _layout(value)
    assert (None if layout is None else layout.sizes) == sizes
    if layout is not None:
        assert Snapshot(layout.tree, []).signature == signature(value)


def test_an_output_on_a_device_has_no_layout() -> None:
    """Its address means nothing to the judge."""
    assert Layout.of({"t": "list", "items": [_node(), _node(device="cuda:0")]}) is None
    # Keys that no check has seen are not looked into.
    assert Layout.of({"t": "none", "items": [1]}) == Layout(tree={"t": "none"}, sizes=())


def test_equal_outputs_have_equal_layouts() -> None:
    """Whatever their bytes, strides and places; another key, order, dtype, shape or container is another layout."""
    value: dict[str, Any] = {"a": torch.zeros(2, 3), "b": [torch.ones(4)]}
    same = {"a": torch.ones(3, 2).t(), "b": [torch.zeros(8)[4:]]}
    assert _layout(value) == _layout(same)
    arrived, views, *_ = _cross(pack(value))
    inputs = {identity(view): number for number, view in enumerate(views)}
    assert Layout.of(Outgoing.describe(arrived, inputs).tree) == _layout(value)
    others: list[object] = [
        {"b": value["b"], "a": value["a"]},
        {"a": value["a"], "c": value["b"]},
        {"a": value["a"].t(), "b": value["b"]},
        {"a": value["a"].int(), "b": value["b"]},
        {"a": value["a"], "b": tuple(value["b"])},
        {"a": value["a"], "b": [*value["b"], None]},
    ]
    assert not [other for other in others if _layout(other) == _layout(value)]


def test_a_layout_places_each_tensor_behind_the_last() -> None:
    """Aligned, in the order of the tree, so that a description by the worker is not needed to read a copy."""
    layout = _layout({"a": torch.ones(200), "b": (torch.ones(0), torch.ones(3), torch.ones(1, dtype=torch.int8))})
    assert layout is not None
    found = regions(layout.tree, placed=[], output_bytes=4 * ALIGN_BYTES)
    assert [region.start for region in found] == [0, 2 * ALIGN_BYTES, 2 * ALIGN_BYTES, 3 * ALIGN_BYTES]
    assert tuple(region.nbytes for region in found) == layout.sizes
    assert not any(region.inputs for region in found)


@pytest.mark.parametrize("outer", CONTAINERS.values(), ids=CONTAINERS)
@pytest.mark.parametrize("inner", CONTAINERS.values(), ids=CONTAINERS)
def test_the_tensors_that_are_listed_are_those_that_are_changed(
    outer: Callable[[Any, Any], Any], inner: Callable[[Any, Any], Any]
) -> None:
    """In containers of the same kinds, none of which is shared with the original."""
    shared, more = torch.zeros(2), torch.ones(3)
    value = outer(inner(shared, 5), inner(more, shared))

    changed = map_tensors(value, lambda tensor: tensor + 1)

    tensors = tensors_of(changed)
    assert [tensor.tolist() for tensor in tensors] == [[1, 1], [2, 2, 2], [1, 1]]
    assert tensors[0] is tensors[2]
    assert [tensor.tolist() for tensor in tensors_of(value)] == [[0, 0], [1, 1, 1], [0, 0]]
    assert str(changed) == str(outer(inner(tensors[0], 5), inner(tensors[1], tensors[0])))
