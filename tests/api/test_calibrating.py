"""Which calibration is this machine's, and how one is measured; driver and worker made up."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import calibration_samples as samples
import pytest
from api import fake_smi

import kernel_compass
from kernel_compass import api
from kernel_compass.api import calibrating, calibrations
from kernel_compass.errors import (
    CalibrationError,
    MeasurementCause,
    MeasurementError,
    MissingDependency,
)
from kernel_compass.measurement import calibration_store
from kernel_compass.profiling.visible_gpus import driver_version, visible_gpus
from kernel_compass.records.calibration import Basis

WORKER = "measurement.fake_calibration"


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """No GPU, an empty store."""
    monkeypatch.setenv("KERNEL_COMPASS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(calibrating, "_DEVICE_NODES", ())
    monkeypatch.setattr(calibrating, "CEILINGS", f"{WORKER}:ceilings")
    monkeypatch.setattr(calibrating, "NOISE", f"{WORKER}:noise")
    return lambda listing, **more: fake_smi.install(tmp_path / "bin", monkeypatch, listing, **more)


def of(name, driver="580.65.06"):
    calibration = samples.complete()
    e = calibration.environment
    environment = replace(e, device=replace(e.device, name=name), driver=driver)
    return replace(calibration, environment=environment)


def test_no_gpu_has_no_calibration():
    assert visible_gpus() == ()
    assert driver_version() is None
    assert api.machine_calibration() is None
    api.save_calibration(of("NVIDIA H200"))
    assert api.machine_calibration() is None


def test_the_stored_one_of_this_device_and_driver(machine):
    machine(fake_smi.H200)
    assert api.machine_calibration() is None
    api.save_calibration(of("NVIDIA H200"))
    api.save_calibration(of("NVIDIA L4"))
    assert api.machine_calibration() == of("NVIDIA H200")
    assert api.machine_calibration("NVIDIA H200") == of("NVIDIA H200")
    assert api.machine_calibration("NVIDIA L4") is None


def test_one_under_another_driver_carries_a_note(machine):
    machine(fake_smi.H200, driver="590.1")
    api.save_calibration(of("NVIDIA H200"))
    found = api.machine_calibration()
    assert found.c_eff_bytes == samples.complete().c_eff_bytes
    assert "580.65.06" in found.notes[-1]
    assert "590.1" in found.notes[-1]
    assert "calibrate" in found.notes[-1]


def test_a_broken_stored_file_is_an_error(machine):
    machine(fake_smi.H200)
    api.save_calibration(of("NVIDIA H200")).write_text("{")
    with pytest.raises(CalibrationError, match=r"nvidia-h200-580\.65\.06\.json is not"):
        api.machine_calibration()


def test_different_gpus_are_never_guessed_between(machine, monkeypatch):
    machine(fake_smi.TWO_KINDS)
    for name in ("NVIDIA H200", "NVIDIA L4"):
        api.save_calibration(of(name))
    with pytest.raises(CalibrationError, match=r"NVIDIA H200, NVIDIA L4.*CUDA_VISIBLE_DEVICES"):
        api.machine_calibration()
    assert api.machine_calibration("NVIDIA L4") == of("NVIDIA L4")
    for word, name in (("1", "NVIDIA L4"), ("GPU-aaaa", "NVIDIA H200"), ("1,7,0", "NVIDIA L4")):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", word)
        assert api.machine_calibration() == of(name)


@pytest.mark.parametrize("word", ["", "-1", "nonsense"])
def test_no_visible_device(machine, monkeypatch, word):
    machine(fake_smi.TWO_KINDS)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", word)
    assert visible_gpus() == ()
    with pytest.raises(MeasurementError):
        api.calibrate()


def test_mig_slices_have_names_of_their_own(machine, monkeypatch):
    machine(fake_smi.MIG)
    names = [gpu.name for gpu in visible_gpus()]
    assert names == [
        "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA H100 80GB HBM3",
    ]
    api.save_calibration(of("NVIDIA H100 80GB HBM3"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-2222")
    assert api.machine_calibration() is None
    api.save_calibration(of("NVIDIA H100 80GB HBM3 MIG 1g.10gb"))
    assert api.machine_calibration() == of("NVIDIA H100 80GB HBM3 MIG 1g.10gb")


def test_a_driver_that_does_not_answer(machine):
    machine("Failed to initialize NVML\n", code=9)
    assert visible_gpus() == ()


@pytest.mark.parametrize(
    ("listing", "script"),
    [("hangs", "exec sleep 60"), ("hangs with a child", "sleep 60; true")],
)
def test_a_driver_that_hangs_costs_seconds_and_is_named(
    machine, tmp_path, monkeypatch, listing, script
):
    monkeypatch.setattr(calibrations, "_PATIENCE_S", 0.5)
    machine(fake_smi.H200)
    (tmp_path / "bin" / "nvidia-smi").write_text(f"#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")
    start = time.monotonic()
    with pytest.raises(CalibrationError, match=r"did not say within 0\.5 s"):
        api.machine_calibration()
    assert time.monotonic() - start < 5


def test_a_driver_that_floods_is_no_driver(machine, tmp_path):
    machine(fake_smi.H200)
    (tmp_path / "bin" / "nvidia-smi").write_text("#!/bin/sh\nexec /bin/cat /dev/zero\n")
    assert visible_gpus() == ()
    assert driver_version() is None


def test_a_driver_without_a_version_is_said_so(machine):
    machine(fake_smi.H200, driver="")
    api.save_calibration(of("NVIDIA H200", driver="575.1"))
    *_, note = api.machine_calibration().notes
    assert "measured under driver 575.1, and nvidia-smi does not tell which is running" in note


@pytest.mark.parametrize("content", ["garbage", "pipe", "deep"])
def test_a_capture_is_diagnosed_whatever_the_store_holds(machine, content):
    machine(fake_smi.H200)
    path = api.save_calibration(of("NVIDIA H200"))
    path.unlink()
    if content == "pipe":
        os.mkfifo(path)
    else:
        path.write_text('{"x": ' + "[" * 5000 if content == "deep" else "{")
    captures = Path(kernel_compass.__file__).parent / "profiling/captures/h200"
    trace = Path(__file__).parents[1] / "golden/kineto/decoder_block_decode_eager.json.gz"
    for capture in (captures / "two_bmms", trace):
        (report, *_) = api.diagnose_files([capture])
        assert report.calibration == "h200"
        (said,) = [w for w in report.warnings if "own calibration is passed over" in w]
        assert str(path) in said


def test_shipped_calibrations_by_device_and_name():
    assert {"a100", "b200", "b300", "h100"} <= set(api.shipped_calibrations())
    assert api.shipped_calibration("NVIDIA B200").name == "b200"
    assert api.shipped_calibration("NVIDIA GeForce RTX 4090") is None
    assert api.calibration("a100").environment.device.name == "NVIDIA A100-SXM4-40GB"


def test_no_gpu_cannot_be_calibrated():
    with pytest.raises(MeasurementError) as caught:
        api.calibrate()
    assert caught.value.cause is MeasurementCause.NO_GPU
    assert "advise ... --gpu h100" in caught.value.remedy
    assert "calibrate --show h100" in caught.value.remedy


@pytest.mark.parametrize("quick", [True, False])
def test_a_calibration_is_measured_in_other_processes(machine, quick):
    machine(fake_smi.H200)
    steps = []
    found = api.calibrate(quick, steps.append)
    assert found.notes == (f"quick {quick}, device 0",)
    assert found.curves == samples.complete().curves
    noise = found.noise
    if quick:  # fresh processes would take longer than all the rest
        assert noise.within_process_pct.basis is noise.between_processes_pct.basis is Basis.ABSENT
        assert "--quick" in noise.between_processes_pct.source
    else:
        assert noise.within_process_pct.basis is Basis.MEASURED
        assert "4 processes" in noise.between_processes_pct.source
        assert 0.1 < noise.within_process_pct.value < 3
    assert [(s.part, s.done) for s in steps[:2]] == [("launch cost", 0), ("read, 1 MiB", 1)]
    assert steps[-1].done == steps[-1].total - 1 == 2 + (0 if quick else 4) - 1
    assert calibration_store.stored() == ()


def test_a_failure_in_the_noise_keeps_the_ceilings(machine, monkeypatch):
    machine(fake_smi.H200)
    monkeypatch.setattr(calibrating, "NOISE", "execution.fake_tasks:raises")
    found = api.calibrate()
    assert found.c_eff_bytes == samples.complete().c_eff_bytes
    assert found.noise.between_processes_pct.basis is Basis.ABSENT
    assert "ZeroDivisionError" in found.noise.between_processes_pct.source


def test_a_worker_without_torch_or_gpu(machine, monkeypatch):
    machine(fake_smi.H200)
    monkeypatch.setattr(calibrating, "CEILINGS", f"{WORKER}:no_torch")
    with pytest.raises(MissingDependency, match="pip install torch"):
        api.calibrate()
    monkeypatch.setattr(calibrating, "CEILINGS", f"{WORKER}:no_gpu")
    with pytest.raises(MeasurementError, match="advise") as caught:
        api.calibrate()
    assert caught.value.cause is MeasurementCause.NO_GPU


def test_a_worker_that_hangs(machine, monkeypatch):
    machine(fake_smi.H200)
    monkeypatch.setattr(calibrating, "CEILINGS", "execution.fake_tasks:sleeps")
    with pytest.raises(MeasurementError) as caught:
        api.calibrate(timeout_s=1.0)
    assert caught.value.cause is MeasurementCause.TIMEOUT


def test_the_real_worker_reports_what_this_environment_lacks():
    """Where torch or a GPU is missing the live procedure says so, in a process of its own."""
    from kernel_compass.execution.tasks import run_task
    from kernel_compass.measurement.calibration_worker import CEILINGS

    if os.path.exists("/dev/nvidiactl"):  # noqa: PTH110
        pytest.skip("there is a GPU here")
    with pytest.raises((MissingDependency, MeasurementError)) as caught:
        run_task(CEILINGS, {"quick": True, "device": 0}, timeout_s=120)
    assert caught.value.remedy
