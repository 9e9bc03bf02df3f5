"""Published dimensions of models: the numbers of their `config.json`, nothing derived.

Source of every row: `config.json` of the Hugging Face repository named in `source`, under the key
that stands beside the field. Cross-checked against the models' own reference code and papers
(arXiv 2405.04434 for DeepSeek-V2, 2412.19437 for V3, 2407.21783 for Llama 3.1, 2505.09388 for
Qwen3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Attention:
    """Grouped-query attention."""

    heads: int
    """`num_attention_heads`."""
    kv_heads: int
    """`num_key_value_heads`."""
    head_dim: int
    """`head_dim`, or `hidden_size / num_attention_heads` where the file has none."""


@dataclass(frozen=True)
class LatentAttention:
    """Multi-head latent attention (MLA)."""

    heads: int
    """`num_attention_heads`."""
    q_rank: int | None
    """`q_lora_rank`; `None` where queries are not compressed."""
    kv_rank: int
    """`kv_lora_rank`."""
    nope_dim: int
    """`qk_nope_head_dim`."""
    rope_dim: int
    """`qk_rope_head_dim`."""
    v_dim: int
    """`v_head_dim`."""


@dataclass(frozen=True)
class Experts:
    """A mixture of experts."""

    routed: int
    """`n_routed_experts` or `num_experts`."""
    active: int
    """`num_experts_per_tok`."""
    intermediate: int
    """`moe_intermediate_size`."""
    shared: int
    """`n_shared_experts`; 0 where there are none."""
    dense_layers: int
    """`first_k_dense_replace`: leading layers with a dense MLP."""


@dataclass(frozen=True)
class ModelConfig:
    """One model's dimensions."""

    name: str
    source: str
    """Hugging Face repository."""
    layers: int
    """`num_hidden_layers`."""
    hidden: int
    """`hidden_size`."""
    intermediate: int | None
    """`intermediate_size` of the dense MLP; `None` where no layer has one."""
    vocabulary: int
    """`vocab_size`."""
    attention: Attention | LatentAttention
    experts: Experts | None = None


_DEEPSEEK_V2_LITE = ModelConfig(
    name="deepseek-v2-lite",
    source="deepseek-ai/DeepSeek-V2-Lite",
    layers=27,
    hidden=2048,
    intermediate=10944,
    vocabulary=102400,
    attention=LatentAttention(16, None, 512, 128, 64, 128),
    experts=Experts(routed=64, active=6, intermediate=1408, shared=2, dense_layers=1),
)
_DEEPSEEK_V2 = ModelConfig(
    name="deepseek-v2",
    source="deepseek-ai/DeepSeek-V2",
    layers=60,
    hidden=5120,
    intermediate=12288,
    vocabulary=102400,
    attention=LatentAttention(128, 1536, 512, 128, 64, 128),
    experts=Experts(routed=160, active=6, intermediate=1536, shared=2, dense_layers=1),
)
_DEEPSEEK_V3 = ModelConfig(
    name="deepseek-v3",
    source="deepseek-ai/DeepSeek-V3",
    layers=61,
    hidden=7168,
    intermediate=18432,
    vocabulary=129280,
    attention=LatentAttention(128, 1536, 512, 128, 64, 128),
    experts=Experts(routed=256, active=8, intermediate=2048, shared=1, dense_layers=3),
)
_LLAMA_8B = ModelConfig(
    name="llama-3.1-8b",
    source="meta-llama/Llama-3.1-8B",
    layers=32,
    hidden=4096,
    intermediate=14336,
    vocabulary=128256,
    attention=Attention(32, 8, 128),
)
_LLAMA_70B = ModelConfig(
    name="llama-3.1-70b",
    source="meta-llama/Llama-3.1-70B",
    layers=80,
    hidden=8192,
    intermediate=28672,
    vocabulary=128256,
    attention=Attention(64, 8, 128),
)
_QWEN3_8B = ModelConfig(
    name="qwen3-8b",
    source="Qwen/Qwen3-8B",
    layers=36,
    hidden=4096,
    intermediate=12288,
    vocabulary=151936,
    attention=Attention(32, 8, 128),
)
_QWEN3_32B = ModelConfig(
    name="qwen3-32b",
    source="Qwen/Qwen3-32B",
    layers=64,
    hidden=5120,
    intermediate=25600,
    vocabulary=151936,
    attention=Attention(64, 8, 128),
)
_QWEN3_30B_A3B = ModelConfig(
    name="qwen3-30b-a3b",
    source="Qwen/Qwen3-30B-A3B",
    layers=48,
    hidden=2048,
    intermediate=None,
    vocabulary=151936,
    attention=Attention(32, 4, 128),
    experts=Experts(routed=128, active=8, intermediate=768, shared=0, dense_layers=0),
)
_QWEN3_235B_A22B = ModelConfig(
    name="qwen3-235b-a22b",
    source="Qwen/Qwen3-235B-A22B",
    layers=94,
    hidden=4096,
    intermediate=None,
    vocabulary=151936,
    attention=Attention(64, 4, 128),
    experts=Experts(routed=128, active=8, intermediate=1536, shared=0, dense_layers=0),
)

MODELS: Mapping[str, ModelConfig] = {
    model.name: model
    for model in (
        _DEEPSEEK_V2_LITE,
        _DEEPSEEK_V2,
        _DEEPSEEK_V3,
        _LLAMA_8B,
        _LLAMA_70B,
        _QWEN3_8B,
        _QWEN3_32B,
        _QWEN3_30B_A3B,
        _QWEN3_235B_A22B,
    )
}
"""By name."""
