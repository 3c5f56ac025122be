"""The tasks of AMD's boards on one device: their inputs, structure and special values."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.unit.problems.bench import Bench
from tests.unit.problems.oracles.amd_fp8_mm import expected as expected_fp8
from tests.unit.problems.oracles.amd_fp8_mm import wide as wide_fp8
from tests.unit.problems.oracles.amd_mla_decode import expected as expected_mla
from tests.unit.problems.oracles.amd_moe import expected as expected_moe


@pytest.mark.parametrize("bench", ["amd_identity"], indirect=True)
def test_a_copy_is_of_any_finite_number(bench: Bench) -> None:
    """Both signs, zeros, subnormal and large numbers, no infinity and no NaN; an output that was never written."""
    source, output = bench.generate({"size": 1 << 18, "seed": 3})
    assert source.isfinite().all()
    assert output.isnan().all()
    # Of 63,488 finite numbers a sample of four times as many misses few.
    assert source.view(torch.int16).unique().numel() > 60000
    assert source.abs().max() > 65000
    assert ((source != 0) & (source.abs() < 2**-14)).float().mean() > 0.02
    assert (source.view(torch.int16) == -0x8000).any()


@pytest.mark.parametrize("bench", ["amd_identity"], indirect=True)
@pytest.mark.parametrize("solution", ["templates/torch_copy.py", "solutions/correct/words.py"])
def test_every_number_is_copied(bench: Bench, solution: str) -> None:
    """All 65,536 patterns, infinities and NaN too, are accepted as they are and arrive bit by bit."""
    source = torch.arange(1 << 16).to(torch.int16).view(torch.float16)
    data = (source, torch.zeros_like(source))
    output = bench.candidate(solution)(data)
    assert torch.equal(output.view(torch.int16), source.view(torch.int16))
    assert bench.check(data, output) == (True, "")


FP8_CASE = {"m": 96, "n": 576, "k": 1536, "seed": 7}
FP8 = pytest.mark.parametrize("bench", ["amd_fp8_mm"], indirect=True)


@FP8
def test_fp8_inputs_have_the_public_layout(bench: Bench) -> None:
    """Shapes, types and strides that published submissions rely on: columns contiguous, but for an unwritten output."""
    data = bench.generate(FP8_CASE)
    assert [(tuple(tensor.shape), tensor.dtype, tensor.stride()) for tensor in data] == [
        ((96, 1536), torch.float8_e4m3fnuz, (1, 96)),
        ((576, 1536), torch.float8_e4m3fnuz, (1, 576)),
        ((96, 12), torch.float32, (1, 96)),
        ((5, 12), torch.float32, (1, 5)),
        ((96, 576), torch.bfloat16, (576, 1)),
    ]
    assert data[-1].isnan().all()


@FP8
def test_fp8_inputs_show_what_is_easily_got_wrong(bench: Bench) -> None:
    """All codes but NaN; scales of all their bits, another power of two in most blocks; sums of about 1."""
    data = bench.generate({"m": 64, "n": 256, "k": 7168, "seed": 7})
    for codes, scales in ((data[0], data[2]), (data[1], data[3])):
        count = torch.bincount(codes.reshape(-1).view(torch.uint8).int(), minlength=256)
        assert count[0x80] == 0
        assert (count > 0).sum() == 255
        assert not torch.equal(scales, scales.bfloat16().float())
        powers = scales.log2().mean(dim=0)
        assert ((powers[1:] - powers[:-1]).abs() > 0.5).float().mean() > 0.5
    assert 0.8 < expected_fp8(data).std() < 1.5


@FP8
@pytest.mark.parametrize("solution", ["reference", "templates/torch_dequantize.py", "solutions/correct/blocks.py"])
def test_made_up_fp8_matrices(bench: Bench, solution: str) -> None:
    """Structure and special values: rows that pick single values of b, zero and negative scales, NaN, the largest."""
    a, b, a_scale, b_scale, c = bench.generate({"m": 64, "n": 192, "k": 256, "seed": 5})
    a = torch.zeros(256, 64, dtype=torch.uint8)
    # 0x40 is 1: row r picks value 4 r of each row of b.
    a[torch.arange(64) * 4, torch.arange(64)] = 0x40
    a[17, 1] = 0x80
    a[:, 2] = 0x7F
    a_scale.fill_(1.0)
    a_scale[3], a_scale[4] = 0.0, -2.0
    data = (a.T.view(torch.float8_e4m3fnuz), b, a_scale, b_scale, c)
    kernel = bench.candidate(solution)
    found = kernel(data)
    exact = wide_fp8(b, b_scale, 128)
    plain = [row for row in range(64) if row not in (1, 2, 3, 4)]
    assert torch.equal(found[plain], exact.T[[4 * row for row in plain]].bfloat16())
    assert found[1].isnan().all()
    assert torch.allclose(found[2].double(), exact.sum(dim=1) * 240, rtol=2e-2)
    assert not found[3].any()
    assert torch.equal(found[4], (-2 * exact[:, 16]).bfloat16())
    assert bench.check(data, expected_fp8(data).bfloat16()) == (True, "")


MOE = pytest.mark.parametrize("bench", ["amd_moe"], indirect=True)
MOE_CASE = {
    "dhidden": 128,
    "dexpert": 48,
    "nroutedexperts": 6,
    "nsharedexperts": 2,
    "nexpertspertoken": 2,
    "bs": 2,
    "seqlen": 9,
    "seed": 7,
}


@MOE
def test_the_layer_has_the_public_layout(bench: Bench) -> None:
    """Names, shapes and types that published submissions rely on."""
    tokens, weights, config = bench.generate(MOE_CASE)
    half = {torch.float16}
    assert (tuple(tokens.shape), {tokens.dtype}, tokens.is_contiguous()) == ((2, 9, 128), half, True)
    assert {each.dtype for each in weights.values()} == half
    assert all(each.is_contiguous() for each in weights.values())
    shapes = {"router": (6, 128)}
    for name, width in (*((f"experts.{index}", 48) for index in range(6)), ("shared_experts", 96)):
        shapes |= {f"{name}.0": (128, width), f"{name}.1": (128, width), f"{name}.2": (width, 128)}
    assert {name: tuple(each.shape) for name, each in weights.items()} == {
        f"{name}.weight": shape for name, shape in shapes.items()
    }
    assert config == {
        "d_hidden": 128,
        "d_expert": 48,
        "n_routed_experts": 6,
        "n_shared_experts": 2,
        "n_experts_per_token": 2,
        "batch_size": 2,
        "seq_len": 9,
    }


@MOE
def test_no_token_is_undecided(bench: Bench) -> None:
    """The margin holds, in float16 too, where of random tokens one in ten would be without it; outputs are about 1."""
    case = {**MOE_CASE, "nroutedexperts": 32, "nexpertspertoken": 4, "seqlen": 256}
    tokens, weights, _ = bench.generate(case)
    x, router = tokens.flatten(0, 1), weights["router.weight"]
    logits = x.double() @ router.double().T
    ordered = logits.sort(dim=1, descending=True).values
    assert (ordered[:, 3] - ordered[:, 4]).min() > 2**-6 - 1e-4
    exact, rounded = (set(map(tuple, each.topk(4).indices.sort().values.tolist())) for each in (logits, logits.half()))
    assert exact == rounded
    undecided = bench.module("reference").undecided
    assert undecided(x, router, 4).numel() == 0
    fresh = torch.randn(512, 128, generator=torch.Generator().manual_seed(3)).half()
    assert 0.02 < undecided(fresh, router, 4).numel() / 512 < 0.3
    assert undecided(fresh, router, 32).numel() == 0
    assert 0.5 < bench.module("reference").ref_kernel(bench.generate(MOE_CASE)).float().std() < 2


@MOE
@pytest.mark.parametrize(
    "solution",
    ["reference", "templates/torch_experts.py", "solutions/correct/grouped.py", "solutions/correct/dense.py"],
)
def test_made_up_routes(bench: Bench, solution: str) -> None:
    """All tokens go to the same experts and none to the others; all experts are chosen; one token, of zeros."""
    kernel = bench.candidate(solution)
    tokens, weights, config = bench.generate(MOE_CASE)
    same = {**weights, "router.weight": torch.zeros_like(weights["router.weight"])}
    tokens[..., 0] = 1
    same["router.weight"][:, 0] = torch.tensor([0, 3, 1, 2, -1, -2])
    everyone = (tokens, same, config)
    assert bench.check(everyone, kernel(everyone)) == (True, "")
    assert bench.check(everyone, expected_moe(everyone).half()) == (True, "")
    # Experts without a token do not count.
    for name in ("experts.0", "experts.5"):
        same[f"{name}.2.weight"] = torch.full_like(same[f"{name}.2.weight"], 100.0)
    assert bench.check(everyone, kernel(everyone)) == (True, "")
    every = bench.generate({**MOE_CASE, "nexpertspertoken": 6})
    assert bench.check(every, kernel(every)) == (True, "")
    one = (torch.zeros(1, 1, 128, dtype=torch.float16), weights, {**config, "batch_size": 1, "seq_len": 1})
    assert not kernel(one).any()


MLA = pytest.mark.parametrize("bench", ["amd_mla_decode"], indirect=True)
MLA_CASE = {"batchsize": 2, "dim": 192, "dq": 64, "prefill": 40, "nheads": 3, "maxlen": 64, "seed": 7}


@MLA
def test_the_decoder_has_the_public_layout(bench: Bench) -> None:
    """Names, shapes and types that published submissions rely on; what is behind the entries in use is not zeros."""
    config, x, kv_cache = bench.generate(MLA_CASE)
    sizes = {name: value for name, value in vars(config).items() if not isinstance(value, torch.Tensor)}
    assert sizes == {
        "batch_size": 2,
        "dim": 192,
        "n_heads": 3,
        "q_lora_rank": 64,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "seq_len": 1,
        "max_seq_len": 64,
        "kv_cache_shape": (2, 64, 576),
    }
    tensors = {name: value for name, value in vars(config).items() if isinstance(value, torch.Tensor)}
    assert {name: tuple(value.shape) for name, value in tensors.items()} == {
        "Q_proj_down_weight": (64, 192),
        "Q_proj_up_weight": (3 * 192, 64),
        "KV_proj_down_weight": (576, 192),
        "KV_proj_up_weight": (3 * 256, 512),
        "wo_weight": (192, 3 * 128),
    }
    assert (tuple(x.shape), tuple(kv_cache.data.shape), kv_cache.seq_len) == ((2, 1, 192), (2, 64, 576), 40)
    for tensor in (*tensors.values(), x, kv_cache.data):
        assert tensor.dtype == torch.bfloat16
        assert tensor.is_contiguous()
    assert kv_cache.data[:, 40:].float().std() > 0.9


@MLA
def test_outputs_of_any_length_are_about_as_large(bench: Bench) -> None:
    """A sixth, with few entries and with many."""
    reference = bench.module("reference")
    for prefill in (30, 300, 3000):
        output, _ = reference.ref_kernel(
            bench.generate({**MLA_CASE, "nheads": 16, "prefill": prefill, "maxlen": prefill + 1})
        )
        assert 0.11 < output.float().std() < 0.25, prefill


@MLA
def test_the_angles_are_those_of_bfloat16(bench: Bench) -> None:
    """Bit by bit what arithmetic on bfloat16 tensors makes of the usual formula, at every position."""
    positions = torch.arange(8192)
    usual = 10000 ** (-torch.arange(0, 32, dtype=torch.bfloat16) / 32)
    angles = positions.bfloat16()[:, None] * usual
    values = torch.cat((torch.ones(8192, 32), torch.zeros(8192, 32)), dim=1)
    expected = torch.cat((angles.cos(), angles.sin()), dim=1).float()
    assert torch.equal(bench.module("reference").rotated(values, positions), expected)


@MLA
@pytest.mark.parametrize(
    "solution",
    ["reference", "templates/torch_absorbed.py", "solutions/correct/absorbed.py", "solutions/correct/expanded.py"],
)
def test_made_up_caches(bench: Bench, solution: str) -> None:
    """An empty cache and a full one; equal weights; one entry that outweighs all others by far."""
    kernel = bench.candidate(solution)
    for seq_len, factor in ((0, 1), (63, 1), (40, 0), (40, 256)):

        def made(seq_len: int = seq_len, factor: int = factor) -> Any:  # noqa: ANN401 what the task makes
            data = bench.generate(MLA_CASE)
            data[0].Q_proj_up_weight.mul_(factor)
            data[2].seq_len = seq_len
            return data

        data = made()
        output, cache = kernel(data)
        exact, exact_cache = expected_mla(made())
        before = made()[2].data
        others = torch.arange(64) != seq_len
        assert torch.equal(cache[:, others], before[:, others])
        assert torch.allclose(cache.double(), exact_cache, rtol=2e-2, atol=8e-3)
        if factor < 256:
            assert torch.allclose(output.double(), exact, rtol=2e-2, atol=8e-3)
        else:
            # Scores in the thousands: which entry wins is a matter of rounding, that one does is not.
            assert output.isfinite().all()
        if seq_len == 0:
            values = cache[:, 0, :512].double() @ data[0].KV_proj_up_weight.double().T
            alone = values.view(2, 3, 256)[..., 128:].flatten(1) @ data[0].wo_weight.double().T
            assert torch.allclose(output[:, 0].double(), alone, rtol=2e-2, atol=8e-3)


@MLA
def test_the_check_leaves_its_data_alone(bench: Bench) -> None:
    """The reference writes into a cache of its own."""
    data = bench.generate(MLA_CASE)
    before = data[2].data.clone()
    bench.module("reference").ref_kernel(data)
    assert torch.equal(data[2].data, before)
    assert data[2].seq_len == 40
