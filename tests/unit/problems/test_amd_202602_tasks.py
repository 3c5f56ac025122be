"""The mixture of experts and the latent attention of AMD's second competition: layouts, and what their inputs show."""

from __future__ import annotations

import math

import pytest
import torch

from tests.unit.problems.bench import Bench
from tests.unit.problems.oracles.mxfp4 import decoded, shuffled_places, shuffled_scale_places

MOE = pytest.mark.parametrize("bench", ["moe_mxfp4"], indirect=True)
_EXPERTS = {"nroutedexperts": 4, "nexpertspertoken": 3, "nsharedexperts": 1}
MOE_CASE = {"dhidden": 512, "dexpert": 256, "bs": 6, "seed": 7, **_EXPERTS}


MLA = pytest.mark.parametrize("bench", ["mixed_mla"], indirect=True)
MLA_CASE = {"batchsize": 4, "qseqlen": 1, "kvseqlen": 200, "seed": 7}


@MOE
def test_the_layer_has_the_public_layout(bench: Bench) -> None:
    """Shapes and types that published submissions rely on; the shared expert comes last, with weight 1."""
    *tensors, config = bench.generate(MOE_CASE)
    four, scale = torch.float4_e2m1fn_x2, torch.float8_e8m0fnu
    assert [(tuple(each.shape), each.dtype) for each in tensors] == [
        ((6, 512), torch.bfloat16),
        ((5, 512, 256), four),
        ((5, 512, 128), four),
        ((5, 512, 16), scale),
        ((5, 512, 8), scale),
        ((5, 512, 256), four),
        ((5, 512, 128), four),
        ((5 * 512, 16), scale),
        ((5 * 512, 8), scale),
        ((6, 4), torch.float32),
        ((6, 4), torch.int32),
    ]
    assert all(each.is_contiguous() for each in tensors)
    sizes = {"d_hidden": 512, "d_expert": 256, "d_hidden_pad": 512, "d_expert_pad": 256}
    counts = {"n_routed_experts": 4, "n_shared_experts": 1, "n_experts_per_token": 3, "total_top_k": 4, "bs": 6}
    assert config == sizes | counts
    weights, experts = tensors[-2:]
    assert experts[:, 3].eq(4).all()
    assert weights[:, 3].eq(1).all()
    assert all(len(set(row)) == 4 for row in experts.tolist())
    assert torch.allclose(weights[:, :3].sum(dim=1), torch.full((6,), 2.5))


@MOE
def test_the_shuffled_bytes_are_where_the_description_says(bench: Bench) -> None:
    """Of weights and scales, for all experts."""
    _, *tensors, _, _ = (each.view(torch.uint8) for each in bench.generate(MOE_CASE)[:-1])
    for packed, scales, shuffled, shuffled_scales in zip(*(tensors[i : i + 2] for i in (0, 2, 4, 6)), strict=True):
        assert torch.equal(shuffled.flatten(1)[:, shuffled_places(*packed.shape[1:])], packed)
        rows, across = scales.flatten(0, 1).shape
        places = shuffled_scale_places(rows, across, across)
        assert torch.equal(shuffled_scales.flatten()[places], scales.flatten(0, 1))


@MOE
def test_either_neighbour_of_a_hidden_value_is_right(bench: Bench) -> None:
    """Values that are about halfway add to the tolerance, some, and much less than an expert left out would need."""
    case = {**MOE_CASE, "dexpert": 1024, "bs": 16}
    output, slack = bench.module("reference").layer(bench.generate(case))
    assert 0 < slack.mean() < 0.5 * output.float().std()
    assert 0.5 < output.float().std() < 2


@MOE
def test_a_block_of_many_hidden_values_left_out_fails(bench: Bench) -> None:
    """As many as the largest benchmark has; whatever is about halfway among the others."""
    sizes = {"dhidden": 256, "dexpert": 2048, "nroutedexperts": 8, "nexpertspertoken": 8, "bs": 48, "seed": 9}
    data = bench.generate({**MOE_CASE, **sizes})
    right = bench.module("reference").ref_kernel(data)
    down_scale = data[4].clone()
    down_scale.view(torch.uint8)[..., -1] = 0
    wrong = bench.module("reference").ref_kernel((*data[:4], down_scale, *data[5:]))
    assert bench.check(data, right) == (True, "")
    assert not bench.check(data, wrong)[0]


@MOE
def test_first_products_are_exact_in_float32(bench: Bench) -> None:
    """The longest sums of the public cases agree with float64 bit by bit."""
    tokens, weights, _, scales, *_ = bench.generate({**MOE_CASE, "dhidden": 7168, "nroutedexperts": 3})
    x, matrix = bench.module("reference").rounded(tokens), decoded(weights[0], scales[0])
    assert torch.equal((x @ matrix.float().T).double(), x.double() @ matrix.T)


@MLA
def test_the_cache_is_the_same_in_all_formats(bench: Bench) -> None:
    """With the public layout, bit by bit; and e4m3fn holds the queries with the scale that makes 448 the greatest."""
    q, kv_data, qo_indptr, kv_indptr, config = bench.generate(MLA_CASE)
    assert (tuple(q.shape), q.dtype) == ((4, 16, 576), torch.bfloat16)
    assert [each.tolist() for each in (qo_indptr, kv_indptr)] == [[0, 1, 2, 3, 4], [0, 200, 400, 600, 800]]
    assert {qo_indptr.dtype, kv_indptr.dtype} == {torch.int32}
    assert (config["batch_size"], config["kv_seq_len"], config["q_seq_len"]) == (4, 200, 1)
    assert math.isclose(config["sm_scale"], 1 / 24)
    cache, (codes, scale), (packed, scales) = (kv_data[name] for name in ("bf16", "fp8", "mxfp4"))
    kinds = [(tuple(each.shape), each.dtype) for each in (cache, codes, scale, packed, scales)]
    assert kinds == [
        ((800, 1, 576), torch.bfloat16),
        ((800, 1, 576), torch.float8_e4m3fn),
        ((1,), torch.float32),
        ((800, 1, 288), torch.float4_e2m1fn_x2),
        ((800, 18), torch.float8_e8m0fnu),
    ]
    assert torch.equal(codes.float() * scale, cache.float())
    assert torch.equal(bench.module("formats").dequantize(packed[:, 0], scales), cache[:, 0].float())
    q_scale = q.abs().amax().float() / 448
    assert torch.equal((q / q_scale).to(torch.float8_e4m3fn).float() * q_scale, q.float())
