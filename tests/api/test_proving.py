"""The judge proves itself on the GPU that is asked for, and again when the judge changes."""

from __future__ import annotations

import subprocess
import sys

import pytest
from api import fake_smi

from kernel_compass.api import judging, proving
from kernel_compass.errors import MeasurementError, UsageError
from kernel_compass.validation.self_test import SelfTest


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """What processes the self-test is run in: device and visible GPU."""
    monkeypatch.setenv("KERNEL_COMPASS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = []

    def ran(_name, arguments, _progress, _timeout_s, environment):
        found.append((arguments["device"], environment.get("CUDA_VISIBLE_DEVICES")))
        return {"results": [], "not_staged": [], "honest_rejected": None}

    monkeypatch.setattr(judging, "run_task", ran)
    return found


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("cpu", [("cpu", None)]),
        ("cuda:0", [("cuda:0", "GPU-aaaa-1")]),
        ("cuda:1", [("cuda:0", "GPU-bbbb-2")]),
        ("cuda", [("cuda:0", "GPU-aaaa-1"), ("cuda:0", "GPU-bbbb-2")]),
    ],
)
def test_it_proves_itself_on_the_gpu_that_is_asked_for(
    asked, tmp_path, monkeypatch, device, expected
):
    fake_smi.install(tmp_path / "bin", monkeypatch, fake_smi.TWO_KINDS)
    assert proving.ensure_self_test(device)
    assert asked == expected
    assert not proving.ensure_self_test(device)
    assert asked == expected


def test_one_of_equal_gpus_speaks_for_all_and_none_of_one_kind_for_another(
    asked, tmp_path, monkeypatch
):
    listing = fake_smi.TWO_KINDS + "GPU 2: NVIDIA H200 (UUID: GPU-eeee-5)\n"
    fake_smi.install(tmp_path / "bin", monkeypatch, listing)
    assert proving.ensure_self_test("cuda:2")
    assert asked == [("cuda:0", "GPU-eeee-5")]
    assert not proving.ensure_self_test("cuda:0")
    assert proving.ensure_self_test("cuda:1")
    assert not proving.ensure_self_test("cuda")
    assert [gpu for _, gpu in asked] == ["GPU-eeee-5", "GPU-bbbb-2"]


def test_a_gpu_that_is_not_there_is_said_before_anything_runs(asked, tmp_path, monkeypatch):
    fake_smi.install(tmp_path / "bin", monkeypatch, fake_smi.H200)
    with pytest.raises(MeasurementError, match="cuda:1 is none of them"):
        proving.ensure_self_test("cuda:1")
    with pytest.raises(UsageError, match="'tpu' is no device"):
        judging.run_self_test("tpu")
    assert asked == []


def test_all_that_judges_is_part_of_what_was_proved():
    """What the judge imports, but for what it judges and the words it says."""
    listed = (
        "import sys\n"
        f"sys.path.insert(0, {str(proving._PACKAGE.parent)!r})\n"
        "import kernel_compass.api.loop_judging\n"
        "for name, module in sys.modules.items():\n"
        "    if name.startswith('kernel_compass.') and module.__file__:\n"
        "        print(module.__file__)"
    )
    run = [sys.executable, "-c", listed]
    loaded = subprocess.run(run, check=True, capture_output=True, text=True).stdout.split()
    package = proving._PACKAGE
    names = {path.removeprefix(f"{package}/") for path in loaded}
    judging_names = {file.relative_to(package).as_posix() for file in proving.judging_files()}
    left = {n for n in names - judging_names if n.count("/") and not n.endswith("__init__.py")}
    others = ("kernels/", "codec/", "profiling/", "api/places.py", "optimizer/")
    assert not {n for n in left if not n.startswith(others)}
    computing = {f"kernels/{n}.py" for n in ("references", "quantize", "quantized")}
    assert computing | {"dispatch_mode.py"} <= judging_names


def test_a_device_is_opened_before_the_process_is_looked_at(monkeypatch):
    """What opening it changes is nobody's doing."""
    pytest.importorskip("torch")
    monkeypatch.delenv("KC_OPENED", raising=False)
    machine_of = judging.machine_of

    def opened(device):
        monkeypatch.setenv("KC_OPENED", "by the driver")
        return machine_of(device)

    monkeypatch.setattr(judging, "machine_of", opened)
    watch = judging.bench("cpu").watch
    assert watch.changed() is None
    monkeypatch.setenv("KC_OPENED", "by a candidate")
    assert "KC_OPENED" in watch.changed().detail


def test_a_self_test_that_failed_names_what_was_missed():
    assert "rejected the honest" in str(proving.judge_failed(SelfTest((), (), "slow")))
