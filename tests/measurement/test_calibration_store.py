"""The store of calibrations: atomic, several devices, and clear about what it cannot use."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import calibration_samples as samples
import pytest

from kernel_compass.codec.calibration_json import encode
from kernel_compass.errors import CalibrationError
from kernel_compass.measurement import calibration_store as store

ROOT = Path(__file__).parents[2]
H200, DRIVER = "NVIDIA H200", "580.65.06"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KERNEL_COMPASS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "calibrations"


def of(name=H200, driver=DRIVER, date="2026-12-01T12:00:00Z"):
    calibration = samples.complete()
    e = calibration.environment
    environment = replace(e, device=replace(e.device, name=name), driver=driver, date=date)
    return replace(calibration, environment=environment)


def test_what_is_saved_is_found(folder):
    path = store.save(of())
    assert path == folder / "nvidia-h200-580.65.06.json"
    assert store.find(H200, DRIVER) == of()
    assert stat.S_IMODE(path.stat().st_mode) & 0o444 == 0o444
    assert store.stored() == (path,)


def test_an_older_one_is_replaced(folder):
    store.save(of(date="2026-01-01"))
    store.save(of(date="2026-02-02"))
    assert store.find(H200, DRIVER).environment.date == "2026-02-02"
    assert len(list(folder.iterdir())) == 1


def test_several_devices_and_slices_live_side_by_side():
    names = (H200, "NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA/odd: ü")
    for name in names:
        store.save(of(name))
    assert len(store.stored()) == len(names)
    for name in names:
        assert store.find(name, DRIVER).environment.device.name == name
    assert store.find("NVIDIA H100 80GB HBM3 MIG 2g.20gb", DRIVER) is None


def test_names_that_read_alike_have_files_of_their_own(folder):
    names = (H200, "NVIDIA  H200", "NVIDIA-H200", "NVIDIA H200 é", "NVIDIA H200 ü", "x" * 300)
    names += ("x" * 301, "unknown", None)
    assert len({store.path_of(name, DRIVER) for name in names}) == len(names)
    assert all(len(store.path_of(name, DRIVER).name) < 255 for name in names)
    for name in names:
        store.save(of(name))
    for name in names:
        assert store.find(name, DRIVER).environment.device.name == name


def test_files_from_before_names_had_a_hash_are_found_and_checked(folder):
    a100 = "NVIDIA A100-SXM4-80GB"
    store.save(of(a100), folder / "nvidia-a100-sxm4-80gb-580.65.06.json")
    assert store.find(a100, DRIVER) == of(a100)
    assert store.find("NVIDIA A100 SXM4 80GB", DRIVER) is None
    (folder / "nvidia-a100-sxm4-80gb-580.65.06.json").write_text("{")
    assert store.find(a100, DRIVER) is None


@pytest.mark.parametrize("kind", ["pipe", "link to a device", "too large", "link to nothing"])
def test_what_is_no_file_of_a_calibration_is_refused_at_once(folder, kind):
    path = store.path_of(H200, DRIVER)
    folder.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "too large":
        path.touch()
        os.truncate(path, (16 << 20) + 1)
    else:
        path.symlink_to("/dev/zero" if "device" in kind else "/nowhere/at/all")
    for call in (lambda: store.find(H200, DRIVER), lambda: store.load(str(path))):
        with pytest.raises(CalibrationError, match="cannot be read"):
            call()
    assert store.find_other_driver(H200) is None


@pytest.mark.parametrize("name", ["~nobody-of-this-name/x.json", "x" * 5000, "a\0b", "a\0b.json"])
def test_names_that_no_file_can_have(name):
    with pytest.raises(CalibrationError) as caught:
        store.load(name)
    assert len(str(caught.value)) < 800
    assert caught.value.remedy


def test_a_store_in_the_home_of_nobody(monkeypatch):
    monkeypatch.setenv("KERNEL_COMPASS_CACHE", "~nobody-of-this-name/cache")
    with pytest.raises(CalibrationError, match="home folder of nobody"):
        store.find(H200, DRIVER)
    assert store.stored() == ()


def test_another_driver_is_another_file_and_the_newest_stands_in():
    store.save(of(driver="570.1", date="2026-01-01"))
    store.save(of(driver="575.2", date="2026-05-05"))
    assert store.find(H200, DRIVER) is None
    assert store.find_other_driver(H200).environment.driver == "575.2"
    assert store.find_other_driver("NVIDIA L4") is None
    assert store.find_other_driver(None) is None


def test_names_without_anything_in_them():
    path = store.save(of(None, None))
    assert path.name == "unknown-unknown.json"
    assert store.find(None, None) == of(None, None)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        encode(samples.complete())[:500],
        encode(samples.complete()).replace(b"calibration/1", b"calibration/9"),
        encode(samples.complete()).replace(b"calibration/1", b"calibration/0"),
    ],
    ids=["empty", "no JSON", "no text", "cut off", "newer", "older"],
)
def test_a_file_that_cannot_be_used_is_named_and_skipped_where_not_asked_for(folder, data):
    path = store.save(of())
    path.write_bytes(data)
    with pytest.raises(CalibrationError) as caught:
        store.find(H200, DRIVER)
    assert str(path) in caught.value.found
    assert "calibrate" in caught.value.remedy
    assert store.find_other_driver(H200) is None
    store.save(of())
    assert store.find(H200, DRIVER) == of()


def test_half_written_files_are_no_calibrations(folder):
    path = store.save(of())
    (folder / f".{path.name}.x1y2").write_text("{")
    (folder / "notes.txt").write_text("mine")
    assert store.stored() == (path,)


def test_a_failed_write_leaves_the_old_file_and_no_rest(folder, monkeypatch):
    path = store.save(of(date="2026-01-01"))

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(CalibrationError, match="No space left"):
        store.save(of(date="2026-02-02"))
    assert store.find(H200, DRIVER).environment.date == "2026-01-01"
    assert list(folder.iterdir()) == [path]


def test_writers_at_the_same_time_leave_one_whole_file(folder):
    errors = []

    def write(i):
        try:
            for _ in range(10):
                store.save(of(date=f"2026-01-{i:02}"))
                store.find(H200, DRIVER)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(i,)) for i in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(list(folder.iterdir())) == 1


READ_ONLY = """
import os, sys
sys.path.insert(0, sys.argv[1])
from kernel_compass.errors import CalibrationError
from kernel_compass.measurement import calibration_store
if os.geteuid() == 0:
    os.setuid(65534)
try:
    calibration_store.check_writable()
except CalibrationError as error:
    print(error.found, error.remedy)
"""


def test_a_store_that_cannot_be_written_says_so_before_anything_is_measured(tmp_path):
    home = tmp_path / "home"
    home.mkdir(mode=0o555)
    environment = {"HOME": str(home), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(ROOT / "src")],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert "cannot be written" in done.stdout, done.stderr
    assert "--output" in done.stdout
    assert not list(home.iterdir())


def test_a_file_in_the_place_of_the_folder(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KERNEL_COMPASS_CACHE", str(tmp_path / "file"))
    for call in (store.check_writable, lambda: store.save(of())):
        with pytest.raises(CalibrationError, match="cannot be written"):
            call()
    assert store.stored() == ()
    assert store.find(H200, DRIVER) is None


def test_check_writable_leaves_nothing(folder):
    store.check_writable()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"KERNEL_COMPASS_CACHE": "/c", "XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/c"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/kernel-compass"),
        ({"XDG_CACHE_HOME": "x", "HOME": "/h"}, "/h/.cache/kernel-compass"),
        ({"XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/kernel-compass"),
        ({"KERNEL_COMPASS_CACHE": "", "HOME": "/h"}, "/h/.cache/kernel-compass"),
    ],
)
def test_where_the_store_is(environ, expected):
    assert store.store_folder(environ) == Path(expected) / "calibrations"


def test_loading_by_name_and_by_path(tmp_path, monkeypatch):
    path = store.save(of())
    assert store.load("H100").name == "h100"
    assert store.load(" b200 ").name == "b200"
    assert store.load("nvidia-h200-580.65.06") == of()
    assert store.load(path) == store.load(str(path)) == of()
    monkeypatch.chdir(path.parent)
    assert store.load(path.name) == of()
    (path.parent / "mine").write_bytes(path.read_bytes())
    assert store.load("mine") == of()


def test_a_shipped_name_wins_over_a_file_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("h100").write_text("junk")
    assert store.load("h100").name == "h100"
    with pytest.raises(CalibrationError, match="not a kernel-compass/calibration/1"):
        store.load("./h100")


@pytest.mark.parametrize("name", ["h1000", "", "none"])
def test_an_unknown_name_lists_the_known_ones(name):
    store.save(of())
    with pytest.raises(CalibrationError) as caught:
        store.load(name)
    assert "h100" in caught.value.found
    assert "nvidia-h200-580.65.06" in caught.value.found


@pytest.mark.parametrize("name", ["missing.json", "/nowhere/at/all", "."])
def test_a_path_that_cannot_be_read(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CalibrationError):
        store.load(Path(name))


def test_saving_to_a_file_of_choice(tmp_path, folder):
    path = store.save(of(), tmp_path / "deep" / "er.json")
    assert json.loads(path.read_text())["name"] == "nvidia-h200"
    assert not folder.exists()
    with pytest.raises(CalibrationError, match="--output"):
        store.save(of(), tmp_path)


def test_a_link_stays_a_link(tmp_path):
    target = store.save(of(), tmp_path / "target.json")
    link = tmp_path / "link.json"
    link.symlink_to(target)
    store.save(of(date="2026-02-02"), link)
    assert link.is_symlink()
    assert store.load(target).environment.date == "2026-02-02"


def test_the_shipped_one_of_a_device():
    assert store.shipped_for("NVIDIA H100 80GB HBM3").name == "h100"
    assert store.shipped_for("NVIDIA H100 80GB HBM3 MIG 1g.10gb") is None
    assert store.shipped_for(None) is None
