"""All providers and what they offer. Imports no library: each is imported when it is used."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import NamedTuple

from kernel_compass.errors import UsageError, shortened
from kernel_compass.kernels.providers import gemlite, humming, own, torch_library, torchao
from kernel_compass.records.contracts import Implementation, Provider, Target
from kernel_compass.records.number_format import NumberFormat
from kernel_compass.records.workload import Workload

_PROVIDERS: tuple[Provider, ...] = (
    torch_library.PROVIDER,
    own.PROVIDER,
    gemlite.PROVIDER,
    humming.PROVIDER,
    torchao.PROVIDER,
)
"""A new provider is a line here; baselines first."""


class Choice(NamedTuple):
    """Who can compute a workload in a format on a target, and why the others cannot."""

    usable: tuple[Implementation, ...]
    refused: Mapping[str, str]
    """The reason of every other implementation, by its name."""


def all_providers() -> tuple[Provider, ...]:
    """Every provider, whether its library is installed or not."""
    return _PROVIDERS


def all_implementations() -> tuple[Implementation, ...]:
    """Every implementation of every provider."""
    return tuple(one for provider in _PROVIDERS for one in provider.implementations())


def implementation(name: str) -> Implementation:
    """The implementation of this name.

    Raises:
        UsageError: there is none.
    """
    known = {one.name: one for one in all_implementations()}
    if name not in known:
        near = get_close_matches(name, known, n=3, cutoff=0.4)
        nearest = f"The nearest: {', '.join(near)}. " if near else ""
        raise UsageError(
            f"There is no implementation {shortened(name)!r}.", f"{nearest}All: {', '.join(known)}."
        )
    return known[name]


def implementations_for(workload: Workload, number_format: NumberFormat, target: Target) -> Choice:
    """Who can compute `workload` in `number_format` on `target`."""
    usable, refused = [], {}
    for one in all_implementations():
        reason = _objection(one, workload, number_format, target)
        if reason is None:
            usable.append(one)
        else:
            refused[one.name] = reason
    return Choice(tuple(usable), refused)


def why_none(refused: Mapping[str, str]) -> str:
    """Why nobody can, from everybody's reasons: of those whose format it nearly is, if there are.

    Args:
        refused: as in `Choice`.
    """
    others = ("computes ", "takes 16-bit", "does not compute")
    near = {name: why for name, why in refused.items() if not any(text in why for text in others)}
    reasons = [
        why if why.startswith(name) else f"{name}: {why}" for name, why in (near or refused).items()
    ]
    return "no implementation known here can; " + "; ".join(dict.fromkeys(reasons))


def _objection(
    one: Implementation, workload: Workload, number_format: NumberFormat, target: Target
) -> str | None:
    """Why it cannot; a library that fails when it is asked costs itself alone."""
    try:
        return one.supports(workload, number_format, target)
    except (Exception, SystemExit) as error:
        lines = str(error).strip().splitlines()
        what = ": ".join([type(error).__name__, *lines[:1]])
        return f"its library fails when it is imported or asked ({shortened(what)})"
