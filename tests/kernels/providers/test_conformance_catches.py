"""The suite fails implementations with a defect, each by the check that is meant for it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="providers compute on tensors: torch is not installed")

import conformance
import torch

from kernel_compass.kernels.providers.torch_cublas import CublasBf16
from kernel_compass.records.contracts import Config, Implementation, Prepared


class Captured(CublasBf16):
    """Reads the weight it packed, whatever it is given."""

    def run(self, prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
        return super().run(prepared, prepared.streamed, a, out)


class IgnoresOut(CublasBf16):
    def run(self, prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
        return super().run(prepared, streamed, a)


class WritesBesideOut(CublasBf16):
    def run(self, prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
        result = super().run(prepared, streamed, a, out)
        if out is not None and out.numel() and not out.is_contiguous():
            torch.as_strided(out, (1,), (1,), out.storage_offset() - 1).zero_()
        return result


class Remembers(CublasBf16):
    """Returns what it computed for the same pointer before."""

    def __init__(self) -> None:
        self.known: dict[int, Any] = {}

    def run(self, prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
        if out is not None:
            return super().run(prepared, streamed, a, out)
        if a.data_ptr() not in self.known:
            self.known[a.data_ptr()] = super().run(prepared, streamed, a)
        return self.known[a.data_ptr()]


class WritesItsInput(CublasBf16):
    def run(self, prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
        result = super().run(prepared, streamed, a, out)
        a.zero_()
        return result


class Zeros(CublasBf16):
    def run(self, prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
        return super().run(prepared, streamed, a, out).zero_()


class DropsTheLastOfK(CublasBf16):
    def run(self, prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
        shorter = a.clone()
        shorter[..., -1] = 0
        return super().run(prepared, streamed, shorter, out)


class OneBadConfig(CublasBf16):
    def run(self, prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
        result = super().run(prepared, streamed, a, out)
        return result.neg_() if prepared.config["layout"] == "nk" else result


class SaysNothingIsAdded(CublasBf16):
    def traffic(self, *args: Any) -> Any:
        return replace(super().traffic(*args), weight_bytes=10)


class AddsTooMuch(CublasBf16):
    def prepare(self, *args: Any, **kwargs: Any) -> Prepared:
        return replace(super().prepare(*args, **kwargs), added_bytes=1 << 30)


class TakesAnything(CublasBf16):
    def prepare(self, weight: Any, workload: Any, config: Config | None = None) -> Prepared:
        known = config is None or "layout" in config
        return super().prepare(weight, workload, config if known else None)


class RefusesWithoutAWord(CublasBf16):
    def supports(self, *args: Any) -> str | None:
        return "no" if super().supports(*args) else None


class NoSpace(CublasBf16):
    def space(self, *args: Any) -> Sequence[Config]:
        return ({"layout": "given"}, {"layout": "given"})


class WrongShapeOfNothing(CublasBf16):
    def run(self, prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
        return a if a.numel() == 0 else super().run(prepared, streamed, a, out)


class SharesItsResult(CublasBf16):
    def __init__(self) -> None:
        self.rooms: dict[Any, Any] = {}

    def run(self, prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
        result = super().run(prepared, streamed, a, out)
        if out is not None:
            return result
        room = self.rooms.setdefault(tuple(result.shape), torch.empty_like(result))
        return room.copy_(result)


class TransposesItsResult(CublasBf16):
    def run(self, prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
        result = super().run(prepared, streamed, a, out)
        return result if out is not None else result.mT.contiguous().mT


class KeepsActivations(CublasBf16):
    def __init__(self) -> None:
        self.last: Any = None

    def run(self, prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
        self.last = a
        return super().run(prepared, streamed, a, out)


class WritesARowMore(CublasBf16):
    """As tiles of 16 rows without a mask do."""

    def run(self, prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
        result = super().run(prepared, streamed, a, out)
        if out is not None and out.numel() and not out.is_contiguous():
            below = out.storage_offset() + out.shape[-2] * out.stride(-2)
            torch.as_strided(out, (out.shape[-1],), (1,), below).zero_()
        return result


class ReadsBesideItsRows(CublasBf16):
    """As K padded with zero weights and no mask on activations does."""

    def run(self, prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
        result = super().run(prepared, streamed, a, out)
        if a.numel() and a.stride(-2) > a.shape[-1]:
            place = a.storage_offset() + a.shape[-1]
            result += 0 * torch.as_strided(a, (*a.shape[:-1], 1), a.stride(), place)
        return result


class WantsAlignment(CublasBf16):
    def run(self, prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
        result = super().run(prepared, streamed, a, out)
        return result if a.data_ptr() % 16 == 0 else result.zero_()


class DropsRowsAfterTwoTiles(CublasBf16):
    def run(self, prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
        result = super().run(prepared, streamed, a, out)
        result[..., 64:, :] = 0
        return result


class DividesByTheLargest(CublasBf16):
    def run(self, prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
        if not a.numel():
            return super().run(prepared, streamed, a, out)
        largest = a.abs().amax(-1, keepdim=True)
        return super().run(prepared, streamed, a / largest, out).mul_(largest)


class SpreadsNaN(CublasBf16):
    def run(self, prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
        return super().run(prepared, streamed, a, out).add_(0 * a.sum())


class ForgetsNaN(CublasBf16):
    def run(self, prepared: Prepared, streamed: Sequence[Any], a: Any, out: Any = None) -> Any:
        return super().run(prepared, streamed, a.nan_to_num(), out)


def miscounted(name: str, value: object) -> type[CublasBf16]:
    """Says something else of its traffic."""

    def traffic(self: CublasBf16, *args: Any) -> Any:
        return replace(CublasBf16.traffic(self, *args), **{name: value})

    return type(f"Miscounts_{name}", (CublasBf16,), {"traffic": traffic})


DEFECTS: list[tuple[type[CublasBf16], Callable[[Implementation, str], None]]] = [
    (Captured, conformance.check_reads_what_is_streamed),
    (IgnoresOut, conformance.check_strided_views),
    (WritesBesideOut, conformance.check_strided_views),
    (Remembers, conformance.check_follows_its_inputs),
    (WritesItsInput, conformance.check_inputs_unchanged),
    (Zeros, conformance.check_product),
    (DropsTheLastOfK, conformance.check_product),
    (OneBadConfig, conformance.check_every_config),
    (SaysNothingIsAdded, conformance.check_bytes),
    (AddsTooMuch, conformance.check_bytes),
    (TakesAnything, conformance.check_wrong_requests),
    (RefusesWithoutAWord, conformance.check_refusals_have_reasons),
    (NoSpace, conformance.check_space),
    (WrongShapeOfNothing, conformance.check_no_rows),
    (SharesItsResult, conformance.check_follows_its_inputs),
    (TransposesItsResult, conformance.check_follows_its_inputs),
    (KeepsActivations, conformance.check_lets_go_of_its_inputs),
    (WritesARowMore, conformance.check_strided_views),
    (ReadsBesideItsRows, conformance.check_strided_views),
    (WantsAlignment, conformance.check_strided_views),
    (DropsRowsAfterTwoTiles, conformance.check_product),
    (DividesByTheLargest, conformance.check_hostile_rows),
    (SpreadsNaN, conformance.check_hostile_rows),
    (ForgetsNaN, conformance.check_hostile_rows),
    (miscounted("activation_bytes", 0), conformance.check_bytes),
    (miscounted("output_bytes", 0), conformance.check_bytes),
    (miscounted("tokens", 4711), conformance.check_bytes),
    (miscounted("dequantized_weights", 1), conformance.check_bytes),
    (miscounted("math", "int8"), conformance.check_bytes),
]


@pytest.mark.parametrize(("defect", "check"), DEFECTS, ids=lambda one: one.__name__)
def test_a_defect_is_caught(
    defect: type[CublasBf16], check: Callable[[Implementation, str], None]
) -> None:
    check(CublasBf16(), "cpu")
    with pytest.raises(AssertionError):
        check(defect(), "cpu")


class KeepsACopy(CublasBf16):
    """... of the weight, and does not say so."""

    def prepare(self, *args: Any, **kwargs: Any) -> Prepared:
        prepared = super().prepare(*args, **kwargs)
        return replace(prepared, extra=prepared.streamed[0].clone())


class SaysItAddsWhatItKept(CublasBf16):
    def prepare(self, *args: Any, **kwargs: Any) -> Prepared:
        prepared = super().prepare(*args, **kwargs)
        return replace(prepared, added_bytes=prepared.streamed[0].nbytes)


class KeepsACopyAndSaysSo(KeepsACopy):
    def prepare(self, *args: Any, **kwargs: Any) -> Prepared:
        prepared = super().prepare(*args, **kwargs)
        return replace(prepared, added_bytes=prepared.streamed[0].nbytes)


class TakesATableOnce(CublasBf16):
    """As libraries do: the first call allocates what all later ones share."""

    table: Any = None

    def prepare(self, *args: Any, **kwargs: Any) -> Prepared:
        if self.table is None:
            self.table = torch.zeros(1 << 20)
        return super().prepare(*args, **kwargs)


def live_bytes(_device: str) -> int:
    """What the GPU's allocator counts there, of the tensors made on the CPU here."""
    gc.collect()
    tensors = [one for one in gc.get_objects() if type(one) is torch.Tensor]
    storages = [one.untyped_storage() for one in tensors]
    return sum({one.data_ptr(): one.nbytes() for one in storages}.values())


@pytest.fixture
def counted(monkeypatch: Any) -> Iterator[None]:
    monkeypatch.setattr(conformance, "taken_bytes", live_bytes)
    gc.collect()
    gc.freeze()  # what lives before the test is not looked at
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("one", [CublasBf16(), KeepsACopyAndSaysSo(), TakesATableOnce()])
def test_bytes_that_are_held_and_said_pass(one: Implementation) -> None:
    conformance.check_bytes(one, "cpu")


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize("one", [KeepsACopy(), SaysItAddsWhatItKept()])
def test_bytes_that_are_held_or_said_alone_are_caught(one: Implementation) -> None:
    with pytest.raises(AssertionError, match=r"says \d+ bytes, holds \d+"):
        conformance.check_bytes(one, "cpu")


def test_every_check_that_a_cpu_can_fail_is_shown_to_fail() -> None:
    assert {check for _, check in DEFECTS} == set(conformance.CHECKS) - {conformance.check_graph}
