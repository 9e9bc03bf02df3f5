"""What every implementation must pass, whoever wrote it; needs torch.

As a program, `python conformance.py NAME [cuda|cpu]` runs all checks of one implementation in this
process and prints one JSON line: what was computed, and the failure of each check that failed. On a
CPU own kernels need an interpreter: `TRITON_INTERPRET=1 python conformance.py own_decode cpu`.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import islice
from typing import Any

from kernel_compass.errors import KernelCompassError, UsageError
from kernel_compass.kernels.library import torch_library
from kernel_compass.kernels.providers.allowances import (
    OWN_ACTIVATIONS,
    ROUNDED,
    SUMS_OF_16_BITS,
)
from kernel_compass.kernels.providers.base import target_of
from kernel_compass.kernels.providers.registry import implementation
from kernel_compass.kernels.quantize import linear_weight, quantize
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.kernels.references import expected, product
from kernel_compass.records.contracts import Implementation, Prepared, Target
from kernel_compass.records.number_format import EXAMPLES, NumberFormat
from kernel_compass.records.workload import Op, Traffic, Workload
from kernel_compass.validation.fidelity import check_fidelity

MORE_FORMATS = ("w4a16_g32", "w4a16_g64", "w4a16_g64_asym", "w4a16_g128_asym", "w4a16_gk_asym")
FORMATS = (*EXAMPLES, *MORE_FORMATS)
_FEW_FORMATS = tuple(name for name in EXAMPLES if name != "fp16")

TOKENS = (1, 16, 33)
MORE_TOKENS = (2, 7, 64, 129)
"""For those to whom a number of tokens costs no compilation."""
WORKLOADS = (
    Workload(Op.BMM, 3, TOKENS[-1], 128, 256),
    Workload(Op.LINEAR, 1, TOKENS[-1], 512, 384),
    Workload(Op.BMM, 1, TOKENS[-1], 512, 384),
    Workload(Op.LINEAR, 1, TOKENS[-1], 1024, 256),
    Workload(Op.LINEAR, 1, TOKENS[-1], 200, 100),
)
"""The last has sizes that many libraries refuse; who does not must get them right."""

SLOW = {
    "torch_compile_bf16": "compiles for every shape",
    "torchao_int8_weight_only": "compiles for every shape",
    "torchao_int8_dynamic": "compiles for every shape",
    "torchao_float8_dynamic": "compiles for every shape",
    "gemlite_w8a16": "tunes for every shape",
    "gemlite_w4a16": "tunes for every shape",
    "gemlite_w8a8": "tunes for every shape",
    "humming_w8a16": "compiles for every shape",
    "humming_w4a16": "compiles for every shape",
    "own_decode": "compiles for every shape; test_decode_gpu.py covers the rest",
}
"""Seconds at each shape: the first three workloads and the formats of `EXAMPLES` but fp16 must do;
on a CPU the first that it can compute."""

INTERPRETED = (
    Workload(Op.BMM, 2, TOKENS[-1], 128, 64),
    Workload(Op.LINEAR, 1, TOKENS[-1], 200, 100),
)
"""What the interpreter, which takes milliseconds a line of a program, is given of own kernels."""

MOST_CONFIGS = 8
"""Configurations of a space that are run; evenly spread, the first and the last among them."""
MOST_INTERPRETED = 3
OF_ANOTHER = {"own_decode_invariant": ("bf16", "w8a16_fp8", "w4a16_g32_asym")}
"""Formats in the interpreter of what is another's kernels in one configuration of their space."""


@dataclass(frozen=True)
class Request:
    """A workload in a format that an implementation says it can compute."""

    one: Implementation
    workload: Workload
    number_format: NumberFormat
    device: str

    def __str__(self) -> str:
        return f"{self.one.name} {self.workload.shape_text} {self.number_format.name}"

    def weight(self, seed: int = 0) -> QuantizedWeight:
        torch = import_module("torch")
        random = torch.Generator(device=self.device).manual_seed(seed)
        shape = self.workload
        size = (shape.heads, shape.columns, shape.reduction)
        dense = 0.05 * torch.randn(size, generator=random, device=self.device)
        if shape.op is Op.LINEAR:
            return quantize(linear_weight(dense[0]), self.number_format)
        return quantize(dense.transpose(1, 2).contiguous(), self.number_format)

    def rows(self, tokens: int, seed: int = 1) -> Any:
        torch = import_module("torch")
        random = torch.Generator(device=self.device).manual_seed(seed)
        size = (self.workload.heads, tokens, self.workload.reduction)
        values = torch.randn(size, generator=random, device=self.device).to(self.dtype)
        return values[0] if self.workload.op is Op.LINEAR else values

    @property
    def dtype(self) -> Any:
        torch = import_module("torch")
        return torch.float16 if self.number_format.activation.value == "fp16" else torch.bfloat16

    def prepare(self, weight: QuantizedWeight, **config: Any) -> Prepared:
        return self.one.prepare(weight, self.workload, **config)

    def assert_product(self, output: Any, a: Any, weight: QuantizedWeight, what: str = "") -> None:
        assert output.dtype == self.dtype, f"{self}{what}: the output is {output.dtype}"
        name = self.one.name
        wanted, limit = expected(a, weight), SUMS_OF_16_BITS.get(name)
        if name in SUMS_OF_16_BITS:
            roundings = self.workload.reduction / 16 * 2.0**-9 * wanted.magnitude
            wanted = replace(wanted, magnitude=wanted.magnitude + roundings * 2.0**8)
        if name in OWN_ACTIVATIONS:
            exact = product(a, weight)
            distance = float((output.double() - exact).norm() / exact.norm())
            assert distance < OWN_ACTIVATIONS[name], f"{self}{what}: {distance:.3%} off"
            return
        rounded = name in ROUNDED or name in SUMS_OF_16_BITS
        found = check_fidelity(output, wanted, rounded_weights=rounded, limit=limit)
        assert found.passed, f"{self} M={a.shape[-2]}{what}: {found.reason}"

    def takes(self, tokens: int) -> bool:
        workload = replace(self.workload, tokens=tokens)
        return self.one.supports(workload, self.number_format, target(self.device)) is None

    @property
    def few(self) -> int:
        """Tokens of all checks but that of the product: the same, as each number is compiled."""
        return 5 if self.takes(5) else TOKENS[-1]


def target(device: str) -> Target:
    torch = import_module("torch")
    return target_of(torch.empty(0, device=device))


def is_interpreted(one: Implementation, device: str) -> bool:
    return one.provider == "own" and device == "cpu"


def requests(one: Implementation, device: str) -> Iterator[Request]:
    here = target(device)
    slow, interpreted = one.name in SLOW, is_interpreted(one, device)
    workloads = INTERPRETED if interpreted else WORKLOADS[:3] if slow else WORKLOADS
    formats = _FEW_FORMATS if slow or interpreted else FORMATS
    formats = OF_ANOTHER.get(one.name, formats) if interpreted else formats
    found = (
        Request(one, workload, NumberFormat.parse(name), device)
        for workload in workloads
        for name in formats
        if one.supports(workload, NumberFormat.parse(name), here) is None
    )
    return islice(found, 1) if slow and device != "cuda" else found


def reasons(one: Implementation, device: str) -> list[str]:
    """Why nothing can be computed here, where that is so."""
    here = target(device)
    found = {
        one.supports(workload, NumberFormat.parse(name), here)
        for workload in WORKLOADS
        for name in FORMATS
    }
    if None in found:
        return []
    named = sorted(reason for reason in found if reason)
    return [reason for reason in named if not reason.startswith("computes ")] or named


def check_refusals_have_reasons(one: Implementation, device: str) -> None:
    for workload in (*WORKLOADS, replace(WORKLOADS[1], tokens=1)):
        for name in FORMATS:
            reason = one.supports(workload, NumberFormat.parse(name), target(device))
            assert reason is None or len(reason.split()) >= 3, f"{name}: {reason!r} is no reason"
            assert reason is None or not reason.endswith("."), f"{reason!r} is part of a sentence"


def check_space(one: Implementation, device: str) -> None:
    here = target(device)
    for request in requests(one, device):
        space = [dict(c) for c in one.space(request.workload, request.number_format, here)]
        assert space, f"{request}: an empty space"
        assert all(space.count(config) == 1 for config in space), f"{request}: doubled configs"
        kinds = {type(value) for config in space for value in config.values()}
        assert kinds <= {int, bool, str}, f"{request}: {kinds}"
        prepared = request.prepare(request.weight())
        assert dict(prepared.config) == space[0], f"{request}: the default is not the first"
        assert prepared.workload == request.workload
        assert prepared.format == request.number_format


def check_product(one: Implementation, device: str) -> None:
    for request in requests(one, device):
        weight = request.weight()
        prepared = request.prepare(weight)
        many = one.name not in SLOW and not is_interpreted(one, device)
        for tokens in filter(request.takes, (*TOKENS, *MORE_TOKENS) if many else TOKENS):
            a = request.rows(tokens)
            request.assert_product(one.run(prepared, prepared.streamed, a), a, weight)


def check_every_config(one: Implementation, device: str) -> None:
    most = MOST_INTERPRETED if is_interpreted(one, device) else MOST_CONFIGS
    for request in _first_of_each_format(one, device):
        space = one.space(request.workload, request.number_format, target(device))
        step = max((len(space) - 1) / (most - 1), 1)
        weight, a = request.weight(), request.rows(request.few)
        for at in range(min(len(space), most)):
            config = space[min(round(at * step), len(space) - 1)]
            prepared = request.prepare(weight, config=config)
            output = one.run(prepared, prepared.streamed, a)
            request.assert_product(output, a, weight, f" {dict(config)}")


def check_strided_views(one: Implementation, device: str) -> None:
    """NaN lies around the activations, and what lies around `out` stays."""
    for request in _first_of_each_format(one, device):
        prepared = request.prepare(request.weight())
        for tokens in {request.few, *filter(request.takes, (1,))}:
            for shift in shifts(one, device):
                _check_view(request, prepared, tokens, shift)


def shifts(one: Implementation, device: str) -> tuple[int, ...]:
    """Elements before the first of an operand: libraries' kernels on a GPU are not asked for odd
    places, and to the interpreter, which compiles nothing for alignment, all are the same."""
    if is_interpreted(one, device):
        return (1,)
    return (8, 1) if device == "cpu" or one.provider == "own" else (8,)


def _check_view(request: Request, prepared: Prepared, tokens: int, shift: int) -> None:
    a, _ = _view_within(request, tokens, request.workload.reduction, shift, float("nan"))
    out, room = _view_within(request, tokens, request.workload.columns, shift, 7.0)
    a.copy_(request.rows(tokens))
    returned = request.one.run(prepared, prepared.streamed, a, out)
    assert returned.data_ptr() == out.data_ptr(), f"{request}: not the `out` handed in"
    request.assert_product(out, a, request.weight(), f" strided, from element {shift}")
    out.fill_(7.0)
    assert bool((room == 7).all()), f"{request}: wrote beside `out`"


def _view_within(
    request: Request, tokens: int, width: int, shift: int, around: float
) -> tuple[Any, Any]:
    """A view `(H, M, width)` of `[M, H, .]` with room on all sides, and all of its memory."""
    torch = import_module("torch")
    size = (tokens + 2, request.workload.heads, width + 2 * shift)
    room = torch.full(size, around, dtype=request.dtype, device=request.device)
    view = room[1:-1].transpose(0, 1)[..., shift:-shift]
    return (view[0] if request.workload.op is Op.LINEAR else view), room


def check_no_rows(one: Implementation, device: str) -> None:
    for request in _first_of_each_format(one, device):
        prepared = request.prepare(request.weight())
        a = request.rows(0)
        output = one.run(prepared, prepared.streamed, a)
        assert output.shape == (*a.shape[:-1], request.workload.columns), str(request)
        assert one.run(prepared, prepared.streamed, a, output) is output, str(request)


def check_follows_its_inputs(one: Implementation, device: str) -> None:
    for request in _first_of_each_format(one, device):
        weight = request.weight()
        prepared = request.prepare(weight)
        a = request.rows(request.few)
        first = one.run(prepared, prepared.streamed, a)
        assert first.stride(-1) == 1, f"{request}: the last dimension of its result is not dense"
        kept = _bits(first)
        a.copy_(request.rows(request.few, seed=9))
        request.assert_product(
            one.run(prepared, prepared.streamed, a), a, weight, " after a change in place"
        )
        assert _bits(first) == kept, f"{request}: a later result took the place of an earlier one"


def check_lets_go_of_its_inputs(one: Implementation, device: str) -> None:
    """Activations of a step are gone when the step is over; interpreted, one format shows it."""
    weak = import_module("torch.multiprocessing.reductions").StorageWeakRef
    found = _first_of_each_format(one, device)
    for request in islice(found, 1) if is_interpreted(one, device) else found:
        prepared = request.prepare(request.weight())
        a = request.rows(request.few)
        held = weak(a.untyped_storage())
        one.run(prepared, prepared.streamed, a)
        del a
        import_module("gc").collect()
        assert held.expired(), f"{request}: keeps its activations"


def check_hostile_rows(one: Implementation, device: str) -> None:
    """A row of zeros, a large and a small one; one with NaN spoils no other."""
    for request in _first_of_each_format(one, device):
        if request.few < 4:
            continue
        weight = request.weight()
        prepared = request.prepare(weight)
        a = request.rows(request.few)
        a[..., 0, :] = 0
        a[..., 1, :] *= 1e3
        a[..., 2, :] *= 1e-3
        output = one.run(prepared, prepared.streamed, a)
        request.assert_product(output, a, weight, " of hostile rows")
        assert bool((output[..., 0, :] == 0).all()), f"{request}: a row of zeros has a product"
        a[..., 3, 5] = float("nan")
        spoilt = one.run(prepared, prepared.streamed, a)
        assert bool(spoilt[..., 3, :].isnan().all()) or request.number_format.activation.bits == 8
        for row in (1, 2):  # by itself: beside the large one nothing else counts
            rows, what = slice(row, row + 1), f" row {row}"
            for found in (output, spoilt):
                request.assert_product(found[..., rows, :], a[..., rows, :], weight, what)


def check_inputs_unchanged(one: Implementation, device: str) -> None:
    for request in _first_of_each_format(one, device):
        weight, a = request.weight(), request.rows(request.few)
        prepared = request.prepare(weight)
        watched = [a, weight.codes, weight.scales, weight.zeros, *prepared.streamed]
        before = [_bits(one) for one in watched]
        one.run(prepared, prepared.streamed, a)
        after = [_bits(one) for one in watched]
        assert before == after, f"{request}: an input was written"


def check_reads_what_is_streamed(one: Implementation, device: str) -> None:
    """A cold benchmark rotates copies: what was captured instead would stay warm."""
    for request in _first_of_each_format(one, device):
        weight, other = request.weight(), request.weight(seed=5)
        prepared = request.prepare(weight)
        a = request.rows(request.few)
        copies = tuple(tensor.clone() for tensor in prepared.streamed)
        request.assert_product(one.run(prepared, copies, a), a, weight, " from copies")
        exchanged = request.prepare(other).streamed
        request.assert_product(
            one.run(prepared, exchanged, a), a, other, " from another weight's tensors"
        )


def check_bytes(one: Implementation, device: str) -> None:
    for request in requests(one, device):
        _check_bytes_of(request)


def _check_bytes_of(request: Request) -> None:
    weight, one = request.weight(), request.one
    held = _held_bytes(lambda: request.prepare(weight), request.device)
    prepared = request.prepare(weight)
    streamed = sum(tensor.nbytes for tensor in prepared.streamed)
    traffic = one.traffic(request.workload, request.number_format)
    codes = request.workload.weights * request.number_format.weight.bits // 8
    assert codes <= traffic.weight_bytes <= 1.5 * codes + 4096, f"{request}: {traffic}"
    assert traffic.weight_bytes <= streamed, f"{request}: streams {streamed}, reads {traffic}"
    _check_traffic(request, traffic)
    assert 0 <= prepared.added_bytes <= 2 * streamed + 4096, f"{request}: {prepared}"
    if held is not None:  # words that a library keeps beside the tensors it hands out
        # scales and zeros may stay the caller's tensors: held beside the original all the same
        given = {t.data_ptr() for t in (weight.scales, weight.zeros) if t is not None}
        shared = sum(t.nbytes for t in prepared.streamed if t.data_ptr() in given)
        assert held - 8192 <= prepared.added_bytes <= held + shared + 8192, (
            f"{request}: says {prepared.added_bytes} bytes, holds {held}"
        )


def _check_traffic(request: Request, traffic: Traffic) -> None:
    w, form = request.workload, request.number_format
    rows, converted = w.heads * w.tokens, form.weight.bits < form.activation.bits
    assert traffic.flops == w.flops, f"{request}: {traffic}"
    assert traffic.tokens == w.tokens, f"{request}: {traffic}"
    assert traffic.activation_bytes == 2 * rows * w.reduction, f"{request}: {traffic}"
    assert traffic.output_bytes == 2 * rows * w.columns, f"{request}: {traffic}"
    assert traffic.dequantized_weights == (w.weights if converted else 0), f"{request}: {traffic}"
    sixteen = form.activation.bits == 16
    assert traffic.math == ("bf16" if sixteen else form.activation.value), f"{request}: {traffic}"


def _held_bytes(prepare: Callable[[], Prepared], device: str) -> int | None:
    """GPU memory that is taken for as long as what `prepare` returns lives; None = not counted.

    The first call takes what a process takes once: workspaces, tables, compiled code. Nothing of it
    is alive at either count, nor may anything of an earlier request be: it would be given back in
    between and come off the difference.
    """
    if taken_bytes(device) is None:
        return None
    prepare()
    before = taken_bytes(device)
    prepared = prepare()
    after = taken_bytes(device)
    del prepared
    return None if before is None or after is None else after - before


def taken_bytes(device: str) -> int | None:
    """Bytes asked of the GPU's allocator and not given back, as asked: blocks can be a MiB more."""
    if device != "cuda":
        return None
    torch = import_module("torch")
    import_module("gc").collect()
    torch.cuda.synchronize()
    return int(torch.cuda.memory_stats()["requested_bytes.all.current"])


def check_wrong_requests(one: Implementation, device: str) -> None:
    for request in _first_of_each_format(one, device):
        weight = request.weight()
        longer = replace(request.workload, reduction=2 * request.workload.reduction)
        _must_refuse(lambda: one.prepare(weight, longer), f"{request}: took another shape")  # noqa: B023
        _must_refuse(
            lambda: request.prepare(weight, config={"no_such_parameter": 1}),  # noqa: B023
            f"{request}: took a configuration that is none",
        )


def check_graph(one: Implementation, device: str) -> None:
    """Captured after a first call, a replay computes from what its inputs hold then."""
    if device != "cuda":
        return
    torch = import_module("torch")
    for request in _first_of_each_format(one, device):
        weight = request.weight()
        prepared = request.prepare(weight)
        a = request.rows(request.few)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            out = torch.empty_like(one.run(prepared, prepared.streamed, a))
            one.run(prepared, prepared.streamed, a, out)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            one.run(prepared, prepared.streamed, a, out)
        a.copy_(request.rows(request.few, seed=11))
        out.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        request.assert_product(out, a, weight, " in a CUDA graph")


CHECKS: tuple[Callable[[Implementation, str], None], ...] = (
    check_refusals_have_reasons,
    check_space,
    check_product,
    check_every_config,
    check_strided_views,
    check_no_rows,
    check_follows_its_inputs,
    check_lets_go_of_its_inputs,
    check_hostile_rows,
    check_inputs_unchanged,
    check_reads_what_is_streamed,
    check_bytes,
    check_wrong_requests,
    check_graph,
)


def _first_of_each_format(one: Implementation, device: str) -> list[Request]:
    """One linear and one bmm of every format."""
    found: dict[object, Request] = {}
    for request in requests(one, device):
        found.setdefault((request.workload.op, request.number_format), request)
    return list(found.values())


def _must_refuse(action: Callable[[], object], otherwise: str) -> None:
    try:
        action()
    except UsageError:
        return
    raise AssertionError(otherwise)


def _bits(tensor: Any) -> Any:
    torch = import_module("torch")
    if tensor is None:
        return None
    return tensor.contiguous().flatten().view(torch.uint8).cpu().numpy().tobytes()


def run_all(name: str, device: str) -> dict[str, Any]:
    """All checks of one implementation: a failure does not keep the others from running."""
    one = implementation(name)
    why = reasons(one, device)
    failures = {}
    for check in () if why else CHECKS:
        try:
            check(one, device)
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{os.path.basename(last.filename)}:{last.lineno}"  # noqa: PTH119
            failures[check.__name__] = f"{type(error).__name__}: {error} ({where})"
    asked = [] if why else [str(request) for request in requests(one, device)]
    return {"name": name, "unusable": why, "computed": asked, "failures": failures}


def main(argv: list[str]) -> int:
    """The program; 2 = it was called for what is not here, and says so."""
    if len(argv) not in (1, 2) or argv[-1] in ("-h", "--help"):
        return _said("Usage: python conformance.py NAME [cuda|cpu]; without the second it is cuda.")
    name, device = argv[0], argv[1] if len(argv) > 1 else "cuda"
    if device not in ("cuda", "cpu"):
        return _said(f"There is no device {device!r}: the second argument is cuda or cpu.")
    try:
        one = implementation(name)
        torch = torch_library()
    except KernelCompassError as error:
        return _said(f"error: {error.found}\nnext: {error.remedy}")
    if device == "cuda" and not torch.cuda.is_available():
        interpreted = "TRITON_INTERPRET=1 " if one.provider == "own" else ""
        here = f"{interpreted}python {sys.argv[0]} {name} cpu"
        return _said(f"error: PyTorch {torch.__version__} finds no CUDA GPU.\nnext: {here}")
    print(json.dumps(run_all(name, device)))
    return 0


def _said(text: str) -> int:
    print(text, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
