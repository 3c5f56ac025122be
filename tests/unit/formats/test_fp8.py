"""FP8 against its definitions, number by number, and against torch's own conversions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tasks.problems.formats.fp8 import decode, encode
from tests.unit.formats.scalar import ALL_BYTES, SPECS, WIDE, around, every_pattern, same, sweep

formats = pytest.mark.parametrize("dtype", SPECS, ids=lambda dtype: str(dtype).removeprefix("torch.float8_"))
wides = pytest.mark.parametrize("wide", WIDE, ids=lambda dtype: str(dtype).removeprefix("torch."))


def nearest(values: torch.Tensor, dtype: torch.dtype) -> list[float]:
    """What each number should become."""
    return [SPECS[dtype].nearest(value) for value in values.tolist()]


@formats
def test_all_codes_decode(dtype: torch.dtype) -> None:
    """All 256, by definition and as torch reads its own type; encoding inverts decoding for every finite number."""
    decoded = decode(ALL_BYTES, dtype)
    assert decoded.dtype == torch.float32
    assert same(decoded.tolist(), [SPECS[dtype].value(code) for code in range(256)])
    assert same(decode(ALL_BYTES.view(dtype), dtype).tolist(), ALL_BYTES.view(dtype).double().tolist())
    numbers = decoded.isfinite()
    assert torch.equal(encode(decoded, dtype).view(torch.uint8)[numbers], ALL_BYTES[numbers])
    assert encode(decoded[decoded.isnan()], dtype).float().isnan().all()


def test_the_exceptions_are_where_the_tables_have_them() -> None:
    """NaNs, infinities, zeros, the least and the largest numbers, code by code."""
    nans = {dtype: [code for code in range(256) if math.isnan(SPECS[dtype].value(code))] for dtype in SPECS}
    assert nans == {
        torch.float8_e4m3fn: [0x7F, 0xFF],
        torch.float8_e4m3fnuz: [0x80],
        torch.float8_e5m2: [0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF],
        torch.float8_e5m2fnuz: [0x80],
    }
    assert [decode(torch.tensor([code], dtype=torch.uint8), dtype).item() for dtype, code in (
        (torch.float8_e4m3fn, 0x7E), (torch.float8_e4m3fn, 0x01), (torch.float8_e4m3fn, 0x08),
        (torch.float8_e4m3fnuz, 0x7F), (torch.float8_e4m3fnuz, 0x01), (torch.float8_e4m3fnuz, 0x08),
        (torch.float8_e5m2, 0x7B), (torch.float8_e5m2, 0x01), (torch.float8_e5m2, 0xFC),
        (torch.float8_e5m2fnuz, 0x7F), (torch.float8_e5m2fnuz, 0x01),
    )] == [
        448.0, 2.0**-9, 2.0**-6, 240.0, 2.0**-10, 2.0**-7, 57344.0, 2.0**-16, -math.inf, 57344.0, 2.0**-17,
    ]  # fmt: skip


@formats
@wides
def test_every_tie_goes_to_even(dtype: torch.dtype, wide: torch.dtype) -> None:
    """Each midpoint, the nearest numbers of the wide type on both sides of it, and each value and its neighbours."""
    spec = SPECS[dtype]
    points = [*spec.midpoints, *(spec.value(code) for code in spec.finite)]
    values = around(points, wide)
    # The midpoints of e5m2fnuz reach below float16's least number.
    assert values.numel() >= 6 * (len(points) - 8)
    assert same(encode(values, dtype).double().tolist(), nearest(values, dtype))


@formats
@pytest.mark.parametrize(("wide", "step"), [(torch.float32, 400_009), (torch.float64, 1_746_151_017_111_111)])
def test_numbers_of_all_magnitudes_encode(dtype: torch.dtype, wide: torch.dtype, step: int) -> None:
    """Bit patterns at even distances, and infinities."""
    values = torch.cat([sweep(wide, step), torch.tensor([math.inf, -math.inf], dtype=wide)])
    assert same(encode(values, dtype).double().tolist(), nearest(values, dtype))


@formats
def test_torch_converts_alike(dtype: torch.dtype) -> None:
    """Its own conversion from float32 gives the same codes within the range."""
    values = torch.cat([every_pattern(torch.bfloat16).float(), sweep(torch.float32, 10_007)])
    values = values[values.abs() <= torch.finfo(dtype).max]
    assert torch.equal(encode(values, dtype).view(torch.uint8), values.to(dtype).view(torch.uint8))


@given(st.lists(st.floats(), min_size=1, max_size=16))
def test_float64_is_not_rounded_twice(numbers: list[float]) -> None:
    """Any doubles, and one next to a tie that float32 would take for the tie."""
    values = torch.tensor(numbers, dtype=torch.float64)
    for dtype in SPECS:
        assert same(encode(values, dtype).double().tolist(), nearest(values, dtype))
    close = torch.tensor([1.0625 + 2**-40, 1.0625 - 2**-40, 1.1875 - 2**-40], dtype=torch.float64)
    assert encode(close, torch.float8_e4m3fn).float().tolist() == [1.125, 1.0, 1.125]
    assert encode(close.float(), torch.float8_e4m3fn).float().tolist() == [1.0, 1.0, 1.25]
