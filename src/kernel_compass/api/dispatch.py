"""Products by a dispatch table: weights handed over once, the implementation picked by tokens.

The two operators are torch's own kind (`torch.ops.kernel_compass.dispatch_bmm` and
`dispatch_linear`) with shape functions, so that `torch.compile` keeps a graph whole around them and
CUDA graphs capture what they launch. A handle goes into them as a number: its tensors are no
inputs of the graph, and stay where they are as long as the handle lives.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernel_compass.api.dispatch_weights import Packed, Product, packed_entries, product_of
from kernel_compass.errors import UsageError
from kernel_compass.kernels.library import torch_library
from kernel_compass.kernels.providers.base import target_of
from kernel_compass.kernels.providers.registry import implementation
from kernel_compass.optimizer.dispatch_file import read_table
from kernel_compass.records.contracts import Implementation, Target, Tensor
from kernel_compass.records.dispatch import DispatchEntry, DispatchTable
from kernel_compass.records.workload import Op

FALLBACK = "torch"
"""What `Explanation.implementation` says where the product is torch's own."""
MOST_CHOSEN = 4096
"""Counts of tokens that a handle remembers its choice for."""
_DEFINING = threading.Lock()
_NUMBERS = itertools.count(1)
_HANDLES: weakref.WeakValueDictionary[int, Handle] = weakref.WeakValueDictionary()


@dataclass(frozen=True)
class Explanation:
    """Which implementation computes a product, and why."""

    implementation: str
    """`torch` where it is the fallback."""
    reason: str
    """One sentence."""
    entry: DispatchEntry | None = None
    """The entry that is used; `None` = the fallback."""
    passed_over: tuple[str, ...] = ()
    """Entries for this product that are not used, each with its reason."""
    notes: tuple[str, ...] = ()
    """What is doubtful about the entry: versions that are not those it was measured with."""


class Handle:
    """A weight that was handed over; made by `Table.prepare`.

    It belongs to this process: it cannot be pickled or copied, as packed weights lie on one GPU,
    in the layout of one implementation's version.
    """

    def __init__(
        self,
        product: Product,
        weight: Tensor,
        packed: Sequence[Packed],
        passed_over: Sequence[str],
        added_bytes: int,
        keep_original: bool,
    ) -> None:
        self.product = product
        self.number = next(_NUMBERS)
        self.added_bytes = added_bytes
        """Memory held beside the original weight."""
        self.original_bytes = weight.numel() * weight.element_size()
        """What the original takes; freed with `keep_original=False`, once nobody else holds it."""
        self._weight = weight if keep_original else None
        self._version = _version(weight)
        self._packed = tuple(packed)
        self._passed_over = tuple(passed_over)
        self._chosen: dict[int, Packed | None] = {}
        operators = _operators()
        self._bmm, self._linear = operators.dispatch_bmm.default, operators.dispatch_linear.default
        self._grad_enabled = torch_library().is_grad_enabled
        _HANDLES[self.number] = self

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UsageError(
            "A handle of a dispatch table cannot be pickled or copied: its packed weights belong "
            "to this process and GPU.",
            "Keep the weight, and call prepare(weight) again where it is loaded.",
        )

    def __repr__(self) -> str:
        kept = "" if self._weight is not None else ", original not kept"
        mib = self.added_bytes / 2**20
        return f"<Handle {self.product.text}: {len(self._packed)} entries, {mib:.1f} MiB{kept}>"

    def explain(self, tokens: int | Tensor) -> Explanation:
        """Which implementation computes a product with so many tokens, or with these activations.

        Args:
            tokens: M, or the activations themselves.
        """
        if not isinstance(tokens, int):
            objection = self.product.objection(tokens)
            if objection is not None:
                return self._fallback(objection)
            tokens = self.product.tokens(tokens)
        found = self._choice(tokens)
        if found is None:
            return self._fallback(self._why_none(tokens))
        entry = found.entry
        reason = f"{entry.reference} measured it at least {entry.surely:.2f} times as fast"
        used = entry.candidate.implementation
        return Explanation(used, reason, entry, self._passed_over, found.notes)

    def computed(self, a: Tensor) -> Tensor | None:
        """The product with activations `(H, M, K)` or `(..., K)`, past the operators; `None` = no
        entry computes it."""
        if not self._packed or self.product.objection(a) is not None:
            return None
        found = self._choice(self.product.tokens(a))
        return None if found is None else self._by(found, a)

    def _choice(self, tokens: int) -> Packed | None:
        """What computes so many tokens; of several the surest."""
        known = self._chosen
        if tokens in known:
            return known[tokens]
        if len(known) >= MOST_CHOSEN:
            known = self._chosen = {}  # not cleared: another thread may be reading it
        fitting = [one for one in self._packed if one.entry.pattern.covers(tokens)]
        best = max(fitting, key=lambda one: one.entry.surely, default=None)
        known[tokens] = best
        return best

    def _run(self, a: Tensor) -> Tensor:
        """The product of activations `(H, M, K)` or `(..., K)`."""
        if self._weight is not None and _version(self._weight) != self._version:
            raise UsageError(
                "The weight was changed in place after it was prepared.",
                "Prepare it again: what was packed is the old one.",
            )
        fits = self._packed and self.product.objection(a) is None
        found = self._choice(self.product.tokens(a)) if fits else None
        return self._torch(a) if found is None else self._by(found, a)

    def _by(self, found: Packed, a: Tensor) -> Tensor:
        """The product by an entry."""
        batched = self.product.op is Op.BMM
        rows = a if batched or a.dim() == 2 else a.reshape(-1, a.shape[-1])
        out = found.implementation.run(found.prepared, found.prepared.streamed, rows)
        return out.contiguous() if rows is a else out.reshape(*a.shape[:-1], self.product.columns)

    def _torch(self, a: Tensor) -> Tensor:
        """What torch computes, refusals included."""
        if self._weight is None:
            why = self.product.objection(a) or self._why_none(self.product.tokens(a))
            raise UsageError(
                f"No entry computes this product: {why}; and the original weight was not kept.",
                "Prepare the weight with keep_original=True.",
            )
        if self.product.op is Op.LINEAR:
            return torch_library().nn.functional.linear(a, self._weight)
        return torch_library().bmm(a, self._weight)

    def _why_none(self, tokens: int) -> str:
        if self._packed:
            covered = "; ".join(one.entry.pattern.text for one in self._packed)
            return f"no entry is for {tokens} tokens (there are {covered})"
        if self._passed_over:
            return f"no entry can be used: {'; '.join(self._passed_over)}"
        return f"the table has no entry for {self.product.text}"

    def _fallback(self, reason: str) -> Explanation:
        return Explanation(FALLBACK, reason, None, self._passed_over)


class Table:
    """A dispatch table in use; made by `load`.

    Args:
        table: the entries.
        implementation_of: finds an implementation by its name.
        target: says what a tensor lies on.
    """

    def __init__(
        self,
        table: DispatchTable,
        implementation_of: Callable[[str], Implementation] = implementation,
        target: Callable[[Tensor], Target] = target_of,
    ) -> None:
        self.table = table
        self._implementation_of = implementation_of
        self._target = target

    def prepare(self, weight: Tensor, keep_original: bool = True) -> Handle:
        """Pack a weight for every entry that fits it on this machine.

        Args:
            weight: `(H, K, N)` for `bmm`, `(N, K)` for `linear`; bfloat16 or float16, on the device
                where it is used.
            keep_original: whether it is held for what no entry is for; without it such a call is
                an error.

        Raises:
            UsageError: it is no such weight; or nothing fits it and it is not to be kept.
        """
        torch = torch_library()
        product = product_of(weight)
        with torch.no_grad():
            given = weight.detach()
            packed, passed_over, added = packed_entries(
                self.table, product, given, self._target(given), self._implementation_of
            )
        if not packed and not keep_original:
            why = "; ".join(passed_over) or f"the table has no entry for {product.text}"
            found = f"No entry computes this weight, and it is not to be kept: {why}."
            raise UsageError(found, "Prepare it with keep_original=True.")
        return Handle(product, given, packed, passed_over, added, keep_original)

    def bmm(self, a: Tensor, handle: Handle) -> Tensor:
        """`a @ weight` with `a (H, M, K)`, as `(H, M, N)`."""
        return bmm(a, handle)

    def linear(self, x: Tensor, handle: Handle) -> Tensor:
        """`x @ weight.T` with `x (..., K)`, as `(..., N)`."""
        return linear(x, handle)

    def explain(self, handle: Handle, tokens: int | Tensor) -> Explanation:
        """Which implementation computes a product with so many tokens, and why."""
        return handle.explain(tokens)


def load(path: str | Path) -> Table:
    """A dispatch table from its file.

    Raises:
        StudyError: there is none, or it cannot be used.
    """
    return Table(read_table(Path(path)))


def bmm(a: Tensor, handle: Handle) -> Tensor:
    """`a @ weight` by what the handle's table picks.

    Args:
        a: `(H, M, K)` in the weight's dtype.
        handle: of a weight `(H, K, N)`.

    Returns:
        `(H, M, N)`.

    Raises:
        UsageError: the handle is of a linear layer, the weight was changed, or a gradient is asked
            for.
    """
    _check(a, handle, Op.BMM)
    return handle._bmm(a, handle.number)


def linear(x: Tensor, handle: Handle) -> Tensor:
    """`x @ weight.T` by what the handle's table picks; all leading dimensions of x are tokens.

    Args:
        x: `(..., K)` in the weight's dtype.
        handle: of a weight `(N, K)`.

    Returns:
        `(..., N)`.

    Raises:
        UsageError: the handle is of a batched product, the weight was changed, or a gradient is
            asked for.
    """
    _check(x, handle, Op.LINEAR)
    return handle._linear(x, handle.number)


def explain(handle: Handle, tokens: int | Tensor) -> Explanation:
    """Which implementation computes a product with so many tokens, and why."""
    return handle.explain(tokens)


def _check(a: Tensor, handle: Handle, op: Op) -> None:
    if handle.product.op is not op:
        raise UsageError(
            f"The handle is of {handle.product.text}, and {op.value} was called with it.",
            f"Call {handle.product.op.value}, or prepare the other weight.",
        )
    if a.requires_grad and handle._grad_enabled():
        raise UsageError(
            "A gradient is asked for, and products by a dispatch table have none.",
            "Use them for inference: under torch.no_grad().",
        )


def _version(weight: Tensor) -> int | None:
    """Counts changes in place; `None` where torch does not count (inference mode)."""
    return None if weight.is_inference() else int(weight._version)


def _handle(number: int) -> Handle:
    found = _HANDLES.get(number)
    if found is None:
        raise UsageError(
            "The handle that a compiled or captured product was made with is gone.",
            "Keep handles as long as what uses them.",
        )
    return found


def _run(a: Tensor, handle: int) -> Tensor:
    return _handle(handle)._run(a)


def _shape_bmm(a: Tensor, handle: int) -> Tensor:
    p = _handle(handle).product
    if a.dim() != 3 or (a.shape[0], a.shape[2]) != (p.heads, p.reduction):
        raise RuntimeError(f"activations {tuple(a.shape)} do not meet {p.text}")
    return a.new_empty((a.shape[0], a.shape[1], p.columns))


def _shape_linear(x: Tensor, handle: int) -> Tensor:
    p = _handle(handle).product
    if x.dim() < 1 or x.shape[-1] != p.reduction:
        raise RuntimeError(f"activations {tuple(x.shape)} do not meet {p.text}")
    return x.new_empty((*x.shape[:-1], p.columns))


def _operators() -> Any:
    """torch's name space of the operators, which are defined once a process."""
    with _DEFINING:  # two threads may prepare their first weights at once
        return _defined_operators()


@cache
def _defined_operators() -> Any:
    torch = torch_library()
    library = torch.library.Library("kernel_compass", "FRAGMENT")
    tag = (torch.Tag.pt2_compliant_tag,)
    for name, shape in (
        ("dispatch_bmm", _shape_bmm),
        ("dispatch_linear", _shape_linear),
    ):
        library.define(f"{name}(Tensor a, int handle) -> Tensor", tags=tag)
        library.impl(name, _run, "CompositeExplicitAutograd")
        torch.library.register_fake(f"kernel_compass::{name}", shape, lib=library)
    _KEPT.append(library)  # what it defined goes with it
    return torch.ops.kernel_compass


_KEPT: list[Any] = []
