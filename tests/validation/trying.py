"""Judge one candidate on one of the problems, as quickly as that is sound."""

from __future__ import annotations

import torch
from judged_problems import PROBLEMS

from kernel_compass.validation.judge import judge
from kernel_compass.validation.judge_contracts import Effort
from kernel_compass.validation.machines import CpuMachine
from kernel_compass.validation.watch import Watch

QUICK = Effort(seeds=2, repeats=8, repeat_s=0.1, later=40, settle_s=0.001)


def tried(problem_name, make, index=0, effort=QUICK):
    """What the judge says of `make()` at the problem's workload of that index."""
    problem, workload = PROBLEMS[problem_name].judged(problem_name, index)
    watch = Watch(torch)
    return judge(torch, problem, workload, make, CpuMachine(torch), watch, effort)
