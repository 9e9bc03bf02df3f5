"""What is found of the autotuned kernels of a file, and launched, in Triton's interpreter."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from kernel_compass.api.problem_files import load_problem
from kernel_compass.api.tuned_kernels import launched_kernels
from kernel_compass.errors import UsageError
from kernel_compass.validation.judge import judge
from kernel_compass.validation.judge_contracts import Effort
from kernel_compass.validation.machines import CpuMachine
from kernel_compass.validation.watch import Watch

loaded = load_problem(torch, Path(sys.argv[1]))
module, workloads = loaded.module, loaded.description.workloads
EFFORT = Effort(seeds=2, repeats=5, repeat_s=0.1, settle_s=0.001)


def judged(name, config, index=0):
    watch = Watch(torch)
    found = judge(
        torch,
        loaded.problem,
        workloads[index],
        lambda: loaded.build(name, config),
        CpuMachine(torch),
        watch,
        EFFORT,
    )
    return [found.reason and found.reason.value, found.detail]


def refused(name, config):
    try:
        loaded.build(name, config).run({}, loaded.problem.inputs(workloads[0], 1))
    except UsageError as error:
        return str(error)
    return None


spaces = {one.name: list(map(dict, one.space)) for one in loaded.description.candidates}
kernel = launched_kernels(module.tuned)[0]
tuner = module.twice_and
before = (list(tuner.configs), tuner.cache)
first, hooked, large = spaces["tuned"]
hooks = {}
said = {}
for name, config in (("first", first), ("hooked", hooked), ("large", large)):
    module.HOOKS.clear()
    said[name] = judged("tuned", config)
    hooks[name] = sorted(set(module.HOOKS))
said["small"] = judged("tuned", large, 1)
said["parts"] = judged("in_parts", spaces["in_parts"][-2])
said["parameters"] = judged("by_parameters", spaces["by_parameters"][-1])
print(
    json.dumps(
        {
            "spaces": spaces,
            "kernel": [kernel.name, list(kernel.keys), list(kernel.parameters)],
            "said": said,
            "hooks": hooks,
            "asked_with": sorted(set(module.ASKED)),
            "as_before": before == (list(tuner.configs), tuner.cache) and "run" not in vars(tuner),
            "refused": [
                refused("tuned", {**first, "twice_and.BLOCK": 128}),
                refused("by_parameters", {"other.BLOCK": 16}),
            ],
        }
    )
)
