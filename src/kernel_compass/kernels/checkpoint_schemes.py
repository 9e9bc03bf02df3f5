"""What a model's `config.json` says about how its layers are quantized."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kernel_compass.errors import UsageError
from kernel_compass.records.number_format import BLOCK, Code


class Method(StrEnum):
    """Who wrote it: `quant_method` of `quantization_config`."""

    COMPRESSED_TENSORS = "compressed-tensors"
    GPTQ = "gptq"
    AWQ = "awq"
    FP8 = "fp8"
    """DeepSeek-V3's own: blocks of 128 x 128."""


@dataclass(frozen=True)
class Scheme:
    """How one layer's weight is stored."""

    method: Method
    bits: int
    group: int | None
    """Weights along K that share a scale; `None` = all of them."""
    floating: bool = False
    symmetric: bool = True
    block: bool = False
    activation: Code | None = None
    """`int8` or `fp8`: to be quantized at run time; `None` = they stay as they are."""
    zero_offset: int = 0
    """What a stored zero point lacks: 1 in GPTQ's first version."""


_SUPPORTED = (
    "Readable are compressed-tensors (pack-quantized, int-quantized, float-quantized), GPTQ of 4 or"
    " 8 bits, AWQ (version gemm) and fp8 in blocks of 128 x 128."
)


def unsupported(found: str) -> UsageError:
    """The refusal of a layout that is not read, with those that are."""
    return UsageError(found, _SUPPORTED)


def scheme_of(config: Mapping[str, Any], layer: str) -> Scheme:
    """The scheme of a layer.

    Args:
        config: the whole `config.json`.
        layer: its name, as its tensors' names begin.

    Raises:
        UsageError: no quantization is configured, or one that cannot be read.
    """
    found = config.get("quantization_config") or config.get("compression_config")
    if not isinstance(found, Mapping):
        raise UsageError(
            f"config.json has no quantization_config, but {layer} is stored quantized.",
            "Take the config.json that the checkpoint was published with.",
        )
    method = str(found.get("quant_method", "")).lower()
    readers = {
        Method.COMPRESSED_TENSORS: _compressed_tensors,
        Method.GPTQ: _gptq,
        Method.AWQ: _awq,
        Method.FP8: _fp8,
    }
    if method not in readers:
        raise unsupported(f"The checkpoint's quant_method is {method or 'not given'!r}.")
    try:
        return readers[Method(method)](found, layer)
    except (AttributeError, KeyError, TypeError, ValueError, re.error) as error:
        raise UsageError(
            f"The quantization_config of {method} is not as published ({error!r}).",
            "Take the config.json that the checkpoint was published with.",
        ) from error


def _gptq(config: Mapping[str, Any], layer: str) -> Scheme:
    version = str(config.get("checkpoint_format") or config.get("format") or "gptq")
    if version not in ("gptq", "gptq_v2"):
        raise unsupported(f"The checkpoint_format of GPTQ is {version!r}.")
    bits = _whole(config["bits"])
    for pattern, changes in (config.get("dynamic") or {}).items():
        if not pattern.startswith("-") and re.match(pattern.removeprefix("+:"), layer):
            bits = _whole(changes.get("bits", bits))
            config = {**config, **changes}
    return Scheme(
        Method.GPTQ,
        bits,
        _group(config["group_size"]),
        symmetric=bool(config.get("sym", True)),
        zero_offset=int(version == "gptq"),
    )


def _awq(config: Mapping[str, Any], _layer: str) -> Scheme:
    version = str(config.get("version", "gemm")).lower()
    if version != "gemm":
        raise unsupported(f"The AWQ version is {version!r}.")
    bits = _whole(config.get("bits", config.get("w_bit", 4)))
    if bits != 4:
        raise unsupported(f"The AWQ weights have {bits} bits.")
    group = _group(config.get("group_size", config.get("q_group_size", 128)))
    return Scheme(Method.AWQ, bits, group, symmetric=False)


def _fp8(config: Mapping[str, Any], _layer: str) -> Scheme:
    block = config.get("weight_block_size")
    if list(block or ()) != [BLOCK, BLOCK] or config.get("fmt", "e4m3") != "e4m3":
        raise unsupported(f"The fp8 weights are {config.get('fmt', 'e4m3')} in blocks of {block}.")
    return Scheme(Method.FP8, 8, BLOCK, floating=True, block=True, activation=Code.FP8)


def _compressed_tensors(config: Mapping[str, Any], layer: str) -> Scheme:
    group = _matching_group(config["config_groups"], layer)
    layout = group.get("format") or config.get("format")
    if layout not in ("pack-quantized", "int-quantized", "float-quantized", "naive-quantized"):
        raise unsupported(f"The compressed-tensors format of {layer} is {layout!r}.")
    weights = group["weights"]
    strategy, kind = str(weights["strategy"]), str(weights.get("type", "int"))
    if strategy == "block" and list(weights.get("block_structure") or ()) != [BLOCK, BLOCK]:
        raise unsupported(f"The blocks of {layer} are {weights.get('block_structure')}.")
    if strategy not in ("tensor", "channel", "group", "block"):
        raise unsupported(f"The scales of {layer} are one a {strategy}.")
    return Scheme(
        Method.COMPRESSED_TENSORS,
        _whole(weights["num_bits"]),
        _strategy_group(strategy, weights),
        floating=kind == "float",
        symmetric=bool(weights.get("symmetric", True)),
        block=strategy == "block",
        activation=_activation(group.get("input_activations"), strategy == "block", layer),
    )


def _strategy_group(strategy: str, weights: Mapping[str, Any]) -> int | None:
    if strategy == "block":
        return BLOCK
    return _group(weights["group_size"]) if strategy == "group" else None


def _activation(found: Mapping[str, Any] | None, block: bool, layer: str) -> Code | None:
    if not found:
        return None
    strategy, bits = found.get("strategy"), found.get("num_bits")
    fits = strategy == "token" or (block and strategy == "group" and found["group_size"] == BLOCK)
    if bits != 8 or not found.get("dynamic") or not fits:
        raise UsageError(
            f"The activations of {layer} are quantized to {bits} bits, one scale a {strategy}, "
            f"dynamic: {found.get('dynamic')}; kernels here do so with 8 bits, a row at a time.",
            "Read the weight for 16-bit activations: weight_only=True.",
        )
    return Code.FP8 if found.get("type") == "float" else Code.INT8


def _matching_group(groups: Mapping[str, Mapping[str, Any]], layer: str) -> Mapping[str, Any]:
    """By name before by class: a class (`Linear`) cannot be checked here, and matches all."""
    if len(groups) == 1:
        return next(iter(groups.values()))
    by_class = []
    for group in groups.values():
        targets: Sequence[str] = group.get("targets") or ()
        for target in targets:
            if target == layer or (
                target.startswith("re:") and re.match(target.removeprefix("re:"), layer)
            ):
                return group
        if any("." not in t and not t.startswith("re:") for t in targets):
            by_class.append(group)
    if len(by_class) != 1:
        raise unsupported(f"{len(by_class)} of {len(groups)} config_groups may be {layer}'s.")
    return by_class[0]


def _whole(value: Any) -> int:
    if isinstance(value, float) and not value.is_integer():  # NaN and infinity are none either
        raise ValueError(f"{value} is no whole number")
    return int(value)


def _group(size: Any) -> int | None:
    number = _whole(size)
    if number == 0 or number < -1:
        raise ValueError(f"group_size {number}")
    return None if number == -1 else number
