"""A live calibration without a GPU."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, replace

import calibration_samples

from kernel_compass.codec.calibration_json import encode
from kernel_compass.errors import MeasurementCause, MeasurementError, MissingDependency
from kernel_compass.records.measurement import LaunchMode, PairedSamples
from kernel_compass.records.profile import Regime


def ceilings(arguments, tell):
    for done, part in enumerate(("launch cost", "read, 1 MiB")):
        tell({"part": part, "done": done, "total": 2})
    note = f"quick {arguments['quick']}, device {arguments['device']}"
    found = replace(calibration_samples.complete(), notes=(note,))
    return {"calibration": json.loads(encode(found))}


def noise(arguments, tell):
    rng = random.Random(arguments["process"])
    sides = [tuple(rng.gauss(5.0, 0.02) for _ in range(arguments["pairs"])) for _ in range(2)]
    samples = PairedSamples(*sides, Regime.WARM, LaunchMode.GRAPH, 20, arguments["process"])
    return {"pairs": asdict(samples)}


def no_torch(arguments, tell):
    raise MissingDependency("No torch.", "pip install torch.")


def no_gpu(arguments, tell):
    raise MeasurementError(MeasurementCause.NO_GPU, "PyTorch finds no CUDA GPU.", "Look.")
