"""The protocols that parts of different layers meet through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Traffic, Workload

Config: TypeAlias = Mapping[str, int | bool | str]
"""One point of an implementation's space; never changed after it was made."""

Tensor: TypeAlias = Any
"""A `torch.Tensor`; records do not import torch."""

ConfigKey: TypeAlias = tuple[tuple[str, str, object], ...]


def config_key(config: Config) -> ConfigKey:
    """What makes two configurations the same: names, types and values; True is not 1."""
    return tuple(sorted((name, type(value).__name__, value) for name, value in config.items()))


@dataclass(frozen=True)
class Target:
    """What an implementation would run on."""

    kind: str
    """`cuda` or `cpu`."""
    capability: tuple[int, int] | None = None
    """Compute capability; `None` on a CPU."""
    name: str = ""
    multiprocessors: int | None = None
    planned: bool = False
    """Whether nothing is run there, only planned: libraries then count as installed."""


@dataclass(frozen=True)
class Prepared:
    """A weight handed over once, in the form an implementation wants."""

    workload: Workload
    """Its tokens are those it was prepared for; any number may be run unless `supports` objects."""
    format: NumberFormat
    config: Config
    streamed: tuple[Tensor, ...]
    """Everything a launch reads beside the activations: packed weights, scales. What a cold regime
    rotates."""
    added_bytes: int
    """Memory held beside the original weight."""
    extra: Any = None
    """What else the implementation keeps: shapes, objects of its library."""
    note: str | None = None
    """What a reader of its times has to know: that a slower kernel had to be taken, and why."""


class Implementation(Protocol):
    """One way to compute a product, of one provider."""

    @property
    def name(self) -> str:
        """`cublas_bf16`, `own_decode`, ...: unique among all providers."""

    @property
    def provider(self) -> str:
        """The name of its provider."""

    def supports(
        self, workload: Workload, number_format: NumberFormat, target: Target
    ) -> str | None:
        """Why it cannot; `None` = it can."""

    def space(
        self, workload: Workload, number_format: NumberFormat, target: Target
    ) -> Sequence[Config]:
        """All configurations that may be tried, the default first; never empty when supported."""

    def prepare(self, weight: Any, workload: Workload, config: Config | None = None) -> Prepared:
        """Pack a `kernels.quantized.QuantizedWeight`, on the device where its tensors lie.

        Args:
            weight: its format is what the implementation supports for this workload.
            workload: decides the default configuration.
            config: one of `space`; `None` = the shipped rule's choice.
        """

    def run(
        self, prepared: Prepared, streamed: Sequence[Tensor], a: Tensor, out: Tensor | None = None
    ) -> Tensor:
        """One launch, asynchronous; safe to capture in a CUDA graph after a first call.

        Args:
            prepared: from `prepare`.
            streamed: `prepared.streamed`, or a copy of it that a cold regime rotates in.
            a: `(H, M, K)` for bmm, any strides with a dense last dimension; `(M, K)` for linear.
            out: `(H, M, N)` or `(M, N)`, likewise; a new one where `None`.
        """

    def traffic(self, workload: Workload, number_format: NumberFormat) -> Traffic:
        """Compulsory bytes and operations of one launch."""


class Provider(Protocol):
    """Where implementations come from."""

    @property
    def name(self) -> str:
        """`torch`, `own`, ..."""

    @property
    def extra(self) -> str | None:
        """The extra that installs it, in a checkout: `pip install '.[EXTRA]'`; `None`: the core."""

    def version(self) -> str | None:
        """Version of the library; `None` = not installed."""

    def implementations(self) -> Sequence[Implementation]:
        """What it offers; importable without the library."""
