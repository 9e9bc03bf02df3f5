"""What `test_two_tritons.py` runs in processes of their own; the first argument says what.

`choices [blocked | moved | unlisted]`: what is chosen for a Hopper GPU, with Gluon as it is, not
there, without its names, or of a release nobody tested. `compile [wider]`: the decode kernels, and
all others, for the architectures that they are for.
"""

from __future__ import annotations

import json
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType

SHAPE = (2, 16, 512, 256)
MMA = {"warps_n": 1, "warps_k": 2, "chains": 2, "rows": 64, "tokens": 16}
WGMMA = {"warps_n": 4, "rows": 128, "tokens": 16}
FORMATS = ("bf16", "fp16", "w8a16_fp8", "w8a16_int8", "w4a16_gk", "w4a16_g128_asym")


class Blocked(MetaPathFinder):
    """A Triton without Gluon."""

    def find_spec(self, name, _path=None, _target=None):
        if name.startswith("triton.experimental.gluon"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def damage(kind):
    import triton

    if kind == "blocked":
        sys.meta_path.insert(0, Blocked())
    elif kind == "unlisted":
        triton.__version__ = "3.99.0"
    elif kind == "moved":
        sys.modules["triton.experimental.gluon"] = ModuleType("triton.experimental.gluon")


def mend():
    """Triton's own launches look into its Gluon too: only the kernels' file was to be without."""
    sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, Blocked)]
    if not hasattr(sys.modules.get("triton.experimental.gluon"), "__path__"):
        sys.modules.pop("triton.experimental.gluon", None)


def choices():
    """What both doors take for a Hopper GPU, and what a launch compiles there."""
    import torch

    from kernel_compass.errors import UsageError
    from kernel_compass.kernels import static_compile
    from kernel_compass.kernels.providers import own
    from kernel_compass.kernels.quantize import quantize
    from kernel_compass.records.contracts import Target
    from kernel_compass.records.number_format import NumberFormat
    from kernel_compass.records.workload import Op, Workload

    own.target_of = lambda _tensor: Target("cuda", (9, 0))
    heads, tokens, k, n = SHAPE
    kind, workload = NumberFormat.parse("w8a16_fp8"), Workload(Op.BMM, *SHAPE)
    one, hopper = own.Decode("own_decode", invariant=False), Target("cuda", (9, 0))
    space = one.space(workload, kind, hopper)
    weight = quantize(torch.randn(heads, k, n), kind)
    prepared = one.prepare(weight, workload)
    a = torch.zeros(heads, tokens, k, dtype=torch.bfloat16)
    mend()
    compiled = static_compile.compile_for(
        lambda: one.run(prepared, prepared.streamed, a), (9, 0), listing=False
    )
    try:
        mma = {"kernel": "mma", "fragments": 1, **MMA}
        refused = one.prepare(weight, workload, mma) and None
    except UsageError as error:
        refused = str(error)
    return {
        "supports": one.supports(workload, kind, hopper),
        "space": sorted({config["kernel"] for config in space}),
        "same": dict(prepared.config) == dict(space[0]),
        "compiled": [figures.kernel for figures in compiled],
        "note": prepared.note,
        "refused": refused,
    }


def unit(figures):
    """HGMMA for the warpgroup instruction, HMMA for a warp's; the name of any other."""
    name = figures.matrix_instruction or ""
    if name.startswith("wgmma"):
        return "HGMMA"
    return "HMMA" if name.startswith("mma.sync") else name or None


def compiled_kernels(wider):
    """`[case, capability, kernel, matrix unit]` of each kernel."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    import static_table

    return [
        [case.name, case.capability, figures.kernel, unit(figures)]
        for case in cases(static_table, wider)
        for figures in case.figures()
    ]


def cases(static_table, wider):
    from kernel_compass.kernels.decode import DecodeConfig
    from kernel_compass.kernels.gluon_support import gluon_objection
    from kernel_compass.records.workload import Op, Workload

    workload = Workload(Op.BMM, *SHAPE)
    gluon = (DecodeConfig("mma", 2, **MMA), DecodeConfig("wgmma", 2, **WGMMA))
    for name in FORMATS if gluon_objection((9, 0)) is None else ():
        for config in gluon:
            yield static_table.decode_case(name, workload, config, (9, 0))
    yield from static_table.plain_decode()
    if not wider:
        return
    yield from static_table.wider()
    yield from static_table.mla_neighbours()


def main():
    what, *more = sys.argv[1:]
    if what == "choices" and more:
        damage(more[0])
    import triton

    from kernel_compass.kernels.gluon_support import gluon_objection

    said = {"triton": triton.__version__, "objection": gluon_objection((9, 0))}
    found = choices() if what == "choices" else {"kernels": compiled_kernels("wider" in more)}
    print(json.dumps({**said, **found}))


if __name__ == "__main__":
    main()
