"""The recorder with an injected measurer, and the economy of strategies on what it writes."""

from __future__ import annotations

import json

import pytest
import record_space
import search_economy

from kernel_compass.analysis.config_constants import H200
from kernel_compass.analysis.config_estimate import estimates_us
from kernel_compass.analysis.config_geometry import geometry
from kernel_compass.codec.recorded_space import read
from kernel_compass.errors import UsageError
from kernel_compass.optimizer.search.prune import Compiled
from kernel_compass.records.device import Device
from kernel_compass.records.environment import Environment
from kernel_compass.records.recorded_space import PointFailure

PLAN = record_space.plan_of("bmm:128x16x512x128:w8a16_fp8")
FIGURES = {"registers": 64.0, "threads": 128.0, "shared_bytes": 0.0, "loop_spills": 0.0}
COMPILED = [
    Compiled(None, "CompilationError: no") if i == 3 else Compiled(FIGURES)
    for i in range(len(PLAN.configs))
]


class Fake:
    """Times that follow from the estimate, with a factor of the configuration's own."""

    def __init__(self, stop_after=10**9, machine="a card"):
        self.left, self.machine, self.asked = stop_after, machine, []

    def environment(self):
        return Environment(Device(self.machine, "9.0", 132))

    def measure(self, config):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt
        self.asked.append(config)
        if config["chains"] == 4:
            raise RuntimeError("out of resources")
        if config["warps_n"] == 8:
            raise record_space.Wrong(0.5)
        launch = [geometry(config, PLAN.workload, PLAN.format, 132)]
        own = 1.0 + 0.4 * (sum(map(ord, json.dumps(dict(config)))) % 17) / 17
        warm = float(estimates_us(launch, False, 132, H200)[0]) * own
        return warm, 1.3 * warm, 1e-3


def record(file, fake, **more):
    return record_space.record(PLAN, file, lambda: fake, COMPILED, say=lambda line: None, **more)


def test_a_recording_goes_on_where_it_was_interrupted(tmp_path):
    file, first, second = tmp_path / "a.json.gz", Fake(50), Fake()
    with pytest.raises(KeyboardInterrupt):
        record(file, first)
    assert len(read(file).points) == 51  # and the one that does not compile
    done = record(file, second)
    assert done.complete
    assert read(file) == done
    assert len(first.asked) + len(second.asked) == len(PLAN.configs) - 1
    kinds = {p.failure for p in done.points}
    assert kinds == {None, PointFailure.COMPILE, PointFailure.LAUNCH, PointFailure.WRONG}
    assert done == record(file, Fake(0)), "nothing is measured again"
    file.unlink()
    with pytest.raises(KeyboardInterrupt):
        record(file, Fake(5))
    with pytest.raises(UsageError, match="another card"):
        record(file, Fake(machine="another card"))


def test_a_kill_costs_little(tmp_path, monkeypatch):
    """SIGKILL runs no `finally`: what counts is what was written before."""
    monkeypatch.setattr(record_space, "EVERY_S", 0.0)
    written = []
    monkeypatch.setattr(record_space.codec, "write", lambda f, space: written.append(space))
    with pytest.raises(KeyboardInterrupt):
        record(tmp_path / "a.json.gz", Fake(20))
    assert [len(space.points) for space in written[:-1]] == list(range(2, 22))


def test_time_is_up(tmp_path):
    done = record(tmp_path / "a.json.gz", Fake(), until=0.0)
    assert not done.complete
    assert len(done.points) == 1


def test_an_illegal_access_ends_the_recording_and_is_not_tried_again(tmp_path):
    class Bad(Fake):
        def measure(self, config):
            self.asked.append(config)
            if len(self.asked) == 7:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            return 2.0, 3.0, 1e-3

    file, bad, good = tmp_path / "a.json.gz", Bad(), Fake()
    with pytest.raises(record_space.ContextLost, match="illegal"):
        record(file, bad)
    assert record(file, good).complete
    assert bad.asked[6] not in good.asked


@pytest.mark.parametrize(
    "text", ["bmm:1x2:bf16", "conv:1x1x1x1:bf16", "bmm", "linear:1x2x3x4:bf16"]
)
def test_shapes_that_are_none(text):
    with pytest.raises(UsageError, match="is no shape"):
        record_space.plan_of(text)


def test_economy(tmp_path, capsys):
    record(tmp_path / "s.json.gz", Fake())
    found = tmp_path / "out.json"
    options = ["--spaces", str(tmp_path), "--seeds", "3", "--strategies", "model,random"]
    assert search_economy.main([*options, "--regimes", "warm", "--json", str(found)]) == 0
    assert "bmm 128x16x512x128 w8a16_fp8 warm" in capsys.readouterr().out
    (row,) = json.loads(found.read_text())
    times = [p.warm_us for p in read(tmp_path / "s.json.gz").points if p.warm_us is not None]
    assert row["near"] == sum(t <= 1.03 * min(times) for t in times)
    assert row["medians"]["model"] < row["medians"]["random"]


def test_economy_without_recordings(tmp_path, capsys):
    assert search_economy.main(["--spaces", str(tmp_path)]) == 2
    assert "record_space.py" in capsys.readouterr().err
