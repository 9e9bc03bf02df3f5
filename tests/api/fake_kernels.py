"""A provider whose kernels run on the simulated GPU: their bytes and faults are known."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernel_compass.analysis.format_traffic import format_traffic, stored_weight
from kernel_compass.errors import UsageError
from kernel_compass.measurement.simulated import SimulatedDevice, SimulatedOperand
from kernel_compass.records.contracts import Prepared, Target
from kernel_compass.records.number_format import NumberFormat


@dataclass
class FakeChecked:
    fault: str | None = None
    fidelity_error_pct: float | None = 0.17
    format_error_pct: float | None = 11.0


@dataclass
class FakeCase:
    weight: tuple
    a: SimulatedOperand
    outputs: SimulatedOperand
    wrong: set

    def new_output(self):
        return self.outputs

    def check(self, output, implementation):
        assert output is self.outputs
        if id(output) in self.wrong:
            return FakeChecked("frobenius: wrong on the whole", 9.0, None)
        return FakeChecked()


@dataclass
class FakeOperands:
    target: Target = field(default_factory=lambda: Target("cuda", (9, 0), "simulated GPU", 132))
    cases: list = field(default_factory=list)
    wrong: set = field(default_factory=set)

    def case(self, workload, number_format, layout):
        self.cases.append((workload.shape_text, number_format.name, layout))
        size = 2 * workload.heads * workload.tokens
        a, out = (SimulatedOperand(size * n) for n in (workload.reduction, workload.columns))
        return FakeCase((workload, number_format), a, out, self.wrong)

    def same(self, one, other):
        return one.bytes == other.bytes


@dataclass
class FakeKernel:
    """Reads its packed weight once; slower than the stream by `extra_us`."""

    name: str
    formats: tuple
    device: SimulatedDevice
    operands: FakeOperands
    extra_us: float = 0.5
    fault: str | None = None
    """`raises`, `exits`, `odd text`, `wrong` or `refuses M=16`."""
    provider: str = "fake"
    note: str | None = None
    runs: int = 0

    def supports(self, workload, number_format, target):
        if number_format.name not in self.formats:
            return f"computes {', '.join(self.formats)}, not {number_format.name}"
        if self.fault == "refuses M=16" and workload.tokens == 16:
            return "M = 16 is too many"
        return None

    def space(self, workload, number_format, target):
        return ({},)

    def prepare(self, weight, workload, config=None):
        _, number_format = weight
        stored = stored_weight(workload, number_format)
        streamed = tuple(SimulatedOperand(n) for n in (stored.codes, stored.scales) if n)
        return Prepared(workload, number_format, {}, streamed, 0, note=self.note)

    def run(self, prepared, streamed, a, out=None):
        self.runs += 1
        if self.fault == "raises":
            raise RuntimeError("no kernel image is available\nfor this device")
        if self.fault == "exits":
            raise SystemExit("no license")
        if self.fault == "odd text":
            raise OSError("no file /tmp/\udcff")
        if self.fault == "wrong":
            self.operands.wrong.add(id(out))
        self.device.launch(*streamed, a, out, extra_us=self.extra_us)
        return out

    def traffic(self, workload, number_format):
        return format_traffic(workload, number_format)


class FakeChoices:
    def __init__(self, *kernels):
        self.kernels = kernels

    def implementation(self, name):
        for kernel in self.kernels:
            if kernel.name == name:
                return kernel
        raise UsageError(f"There is no implementation {name!r}.", "")

    def implementations_for(self, workload, number_format, target):
        refused = {}
        usable = []
        for kernel in self.kernels:
            reason = kernel.supports(workload, number_format, target)
            if reason is None:
                usable.append(kernel)
            else:
                refused[kernel.name] = reason
        return usable, refused


def formats(*names):
    return tuple(NumberFormat.parse(name) for name in names)
