"""What tests of applied actions share: entries of this CPU, and implementations that show."""

from __future__ import annotations

from api.dispatch_stand_ins import Doubled

from kernel_compass.api.actions.context import Context, machine_model
from kernel_compass.api.applying import applied_actions
from kernel_compass.kernels.providers.registry import implementation
from kernel_compass.records.contracts import Target
from kernel_compass.records.step_action import StepAction, StepActionKind, StepTarget
from kernel_compass.records.trial import Candidate
from kernel_compass.records.workload import Op, Workload

FORMAT = "w8a16_int8"
HERE = machine_model


def product(op=Op.LINEAR, heads=1, tokens=4, reduction=96, columns=80, name="stand_in", **target):
    work = Workload(op, heads, tokens, reduction, columns)
    at = StepTarget(work.shape_text, workload=work, **target)
    return StepAction(StepActionKind.PRODUCT, at, Candidate(name, {"BLOCK": 64}, FORMAT))


def action(kind, what="it", config=None, settings=None, **target):
    return StepAction(
        StepActionKind(kind), StepTarget(what, **target), None, config or {}, settings or {}
    )


def put_on(actions, roots=None, stand_in=None, **options):
    """Actions on, with a stand-in among the implementations."""
    known = {one.name: one for one in (stand_in or Doubled(),)}

    def context():
        found = Context(
            implementation_of=lambda name: known[name] if name in known else implementation(name),
            target=lambda _: Target("cpu"),
            **options,
        )
        found.roots = {"": roots} if hasattr(roots, "named_modules") else roots
        return found

    return applied_actions(actions, context=context)
