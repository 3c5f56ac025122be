"""The tasks of AMD's boards on one device: their inputs, structure and special values."""

from __future__ import annotations

import pytest
import torch

from tests.unit.problems.bench import Bench

FP8_CASE = {"m": 96, "n": 576, "k": 1536, "seed": 7}
FP8 = pytest.mark.parametrize("bench", ["amd_fp8_mm"], indirect=True)
_EXPERTS = {"nroutedexperts": 6, "nsharedexperts": 2, "nexpertspertoken": 2}
MOE_CASE = {"dhidden": 128, "dexpert": 48, "bs": 2, "seqlen": 9, "seed": 7, **_EXPERTS}


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


MOE = pytest.mark.parametrize("bench", ["amd_moe"], indirect=True)


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
    sizes = {"d_hidden": 128, "d_expert": 48, "batch_size": 2, "seq_len": 9}
    assert config == {**sizes, "n_routed_experts": 6, "n_shared_experts": 2, "n_experts_per_token": 2}


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


MLA = pytest.mark.parametrize("bench", ["amd_mla_decode"], indirect=True)
MLA_CASE = {"batchsize": 2, "dim": 192, "dq": 64, "prefill": 40, "nheads": 3, "maxlen": 64, "seed": 7}


@MLA
def test_the_decoder_has_the_public_layout(bench: Bench) -> None:
    """Names, shapes and types that published submissions rely on; what is behind the entries in use is not zeros."""
    config, x, kv_cache = bench.generate(MLA_CASE)
    sizes = {"batch_size": 2, "dim": 192, "n_heads": 3, "seq_len": 1, "max_seq_len": 64}
    ranks = {"q_lora_rank": 64, "kv_lora_rank": 512, "kv_cache_shape": (2, 64, 576)}
    heads = {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
    shapes = {"Q_proj_down_weight": (64, 192), "Q_proj_up_weight": (3 * 192, 64), "KV_proj_down_weight": (576, 192)}
    shapes |= {"KV_proj_up_weight": (3 * 256, 512), "wo_weight": (192, 3 * 128)}
    tensors = {name: value for name, value in vars(config).items() if isinstance(value, torch.Tensor)}
    assert {name: tuple(value.shape) for name, value in tensors.items()} == shapes
    assert {name: value for name, value in vars(config).items() if name not in shapes} == {**sizes, **ranks, **heads}
    assert (tuple(x.shape), tuple(kv_cache.data.shape), kv_cache.seq_len) == ((2, 1, 192), (2, 64, 576), 40)
    for tensor in (*tensors.values(), x, kv_cache.data):
        assert tensor.dtype == torch.bfloat16
        assert tensor.is_contiguous()
    assert kv_cache.data[:, 40:].float().std() > 0.9


@MLA
@pytest.mark.parametrize("place", [0, 39, 41, 63])
def test_other_entries_of_the_cache_are_compared_exactly(bench: Bench, place: int) -> None:
    """A change that would be within the tolerance of a new entry. The reference writes into a cache of its own."""
    data = bench.generate(MLA_CASE)
    before = data[2].data.clone()
    output, cache = bench.module("reference").ref_kernel(data)
    assert torch.equal(data[2].data, before)
    assert data[2].seq_len == 40
    cache[:, 40] *= 1.001
    assert bench.check(data, (output, cache)) == (True, "")
    cache[1, place, 5] += 0.004
    good, message = bench.check(data, (output, cache))
    assert not good
    assert message.startswith(f"1 of 73728 elements differ; at (1, {place}, 5): found ")
