"""Shapes of published models: against parameter counts, and against a serving engine's shards."""

from __future__ import annotations

import pytest

from kernel_compass.analysis.model_configs import MODELS
from kernel_compass.analysis.models import model_named, projections, routed_load
from kernel_compass.errors import UsageError
from kernel_compass.records.workload import Op

BILLIONS = {  # published totals, embeddings included
    "deepseek-v2-lite": 15.7,
    "deepseek-v2": 236,
    "deepseek-v3": 671,
    "llama-3.1-8b": 8.03,
    "llama-3.1-70b": 70.6,
    "qwen3-8b": 8.2,
    "qwen3-32b": 32.8,
    "qwen3-30b-a3b": 30.5,
    "qwen3-235b-a22b": 235,
}


def shapes(name: str, tokens: int, tp: int) -> dict[str, str]:
    found = projections(MODELS[name], tokens, tp)
    return {p.workload.name: p.workload.shape_text for p in found}


def test_every_model_has_a_published_size() -> None:
    assert set(MODELS) == set(BILLIONS)


@pytest.mark.parametrize("name", BILLIONS)
def test_weights_add_up_to_the_published_size(name: str) -> None:
    """With so many tokens that every expert is hit, all weights but the embedding are listed."""
    model = MODELS[name]
    total = model.vocabulary * model.hidden
    for p in projections(model, 100_000):
        total += p.layers * p.workload.weights
    assert total / 1e9 == pytest.approx(BILLIONS[name], rel=0.01)


@pytest.mark.parametrize("name", BILLIONS)
@pytest.mark.parametrize("tp", [2, 4])
def test_splitting_splits_all_that_is_not_replicated(name: str, tp: int) -> None:
    whole = {p.workload.name: p for p in projections(MODELS[name], 16)}
    for part in projections(MODELS[name], 16, tp):
        share = 1 if part.sharded == "replicated" else tp
        assert part.workload.weights * share == whole[part.workload.name].workload.weights
        assert part.layers == whole[part.workload.name].layers


def test_deepseek_v3_on_eight_gpus() -> None:
    found = shapes("deepseek-v3", 16, 8)
    assert found["q_absorb"] == "bmm 16x16x128x512"
    assert found["v_up"] == "bmm 16x16x512x128"
    assert found["qkv_a_proj"] == "linear 16x2112x7168"
    assert found["q_b_proj"] == "linear 16x3072x1536"
    assert found["o_proj"] == "linear 16x7168x2048"
    assert found["gate_up_proj"] == "linear 16x4608x7168"
    assert found["shared_down_proj"] == "linear 16x7168x256"
    assert found["lm_head"] == "linear 16x16160x7168"


def test_layers_with_dense_and_expert_mlps_add_up() -> None:
    layers = {p.workload.name: p.layers for p in projections(MODELS["deepseek-v3"], 1)}
    assert layers["gate_up_proj"] == 3
    assert layers["experts_down"] == 58
    assert layers["lm_head"] == 1


def test_llama_as_an_engine_fuses_it() -> None:
    found = shapes("llama-3.1-8b", 1, 1)
    assert found["qkv_proj"] == "linear 1x6144x4096"
    assert found["gate_up_proj"] == "linear 1x28672x4096"
    assert found["down_proj"] == "linear 1x4096x14336"


def test_more_gpus_than_key_value_heads_copy_them() -> None:
    found = {p.workload.name: p for p in projections(MODELS["qwen3-235b-a22b"], 1, 8)}
    assert found["qkv_proj"].workload.columns == (64 // 8 + 2) * 128
    assert "copied" in found["qkv_proj"].assumption


def test_experts_of_one_token_are_those_it_chose() -> None:
    experts = MODELS["deepseek-v3"].experts
    assert routed_load(experts, 1) == (8, 1)
    hit, rows = routed_load(experts, 64)
    assert hit == pytest.approx(256 * (1 - (1 - 8 / 256) ** 64), abs=0.5)
    assert hit * rows >= 64 * 8
    assert routed_load(experts, 10**6) == (256, 31250)
    found = {p.workload.name: p for p in projections(MODELS["deepseek-v3"], 64, 8)}
    assert found["experts_gate_up"].workload.op is Op.BMM
    assert found["experts_gate_up"].workload.heads == hit
    assert f"{hit} are hit" in found["experts_gate_up"].assumption


def test_a_split_that_does_not_divide_names_what_does() -> None:
    with pytest.raises(UsageError, match="cannot be split over 3 GPUs: 32 heads") as error:
        projections(MODELS["llama-3.1-8b"], 1, 3)
    assert "--tp 1, 2, 4, 8, 16, 32" in error.value.remedy
    with pytest.raises(UsageError, match="10944 intermediate size"):
        projections(MODELS["deepseek-v2-lite"], 1, 128)


@pytest.mark.parametrize("tp", [0, -1, 10**9])
def test_nonsense_splits_are_refused(tp: int) -> None:
    with pytest.raises(UsageError, match="out of range"):
        projections(MODELS["llama-3.1-8b"], 1, tp)


def test_unknown_models_and_empty_batches_are_refused() -> None:
    with pytest.raises(UsageError, match="no model 'gpt-5'") as error:
        model_named("gpt-5")
    assert "deepseek-v3" in error.value.remedy
    with pytest.raises(UsageError, match="0 tokens"):
        projections(MODELS["llama-3.1-8b"], 0)
    assert model_named(" DeepSeek-V3 ") is MODELS["deepseek-v3"]
