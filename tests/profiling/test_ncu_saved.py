"""The folder of `profile --save`: jobs that share it, full disks, and damaged folders."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from kernel_compass.errors import CaptureError, DamagedCapture, NotAMetricTable, UsageError
from kernel_compass.profiling import capture_index
from kernel_compass.profiling.ncu_saved import CaptureFiles, CaptureFolder, read_saved
from kernel_compass.profiling.recorded import recorded_path
from kernel_compass.records.profile import Regime, Source, SourceFormat
from kernel_compass.records.request import ProfileRequest

SPAWN = multiprocessing.get_context("spawn")
REGIMES = (Regime.WARM, Regime.COLD)
CSV = recorded_path("two_bmms") / "two_bmms_warm.csv"


def opened(folder: Path, label: str = "x") -> CaptureFolder:
    return CaptureFolder(folder, ProfileRequest(("prog",), label=label), ["GPU"])


def source(regime: Regime) -> Source:
    return Source(None, SourceFormat.NCU_RUN, regime, "none", "none", "kernel", "2025.3.1")


def made(work: Path, name: str, text: str | None = None) -> tuple[Path, Path]:
    """A report and a table, as a run leaves them."""
    work.mkdir(exist_ok=True)
    report, table = work / f"{name}.ncu-rep", work / f"{name}.csv"
    report.write_text(f"report {text or name}")
    table.write_text(text or CSV.read_text())
    return report, table


def save(job: CaptureFolder, work: Path, regime: Regime, text: str | None = None) -> CaptureFiles:
    files = job.keep(regime.value, *made(work, regime.value, text))
    job.add(source(regime), [files])
    return files


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def index(folder: Path) -> list[dict[str, Any]]:
    entries = json.loads((folder / "captures.json").read_text())["captures"]
    assert isinstance(entries, list)
    return entries


def saving(folder: Path, work: Path, number: int, start: Barrier) -> None:
    job = opened(folder)
    for regime in REGIMES:
        start.wait(60)
        save(job, work / str(number), regime, f"job {number} {regime}")


def test_concurrent_jobs_keep_every_file_and_entry(tmp_path: Path) -> None:
    folder, work, jobs = tmp_path / "kept", tmp_path / "work", 4
    work.mkdir()
    start = SPAWN.Barrier(jobs)
    running = [SPAWN.Process(target=saving, args=(folder, work, n, start)) for n in range(jobs)]
    for process in running:
        process.start()
    for process in running:
        process.join(120)
    assert [process.exitcode for process in running] == [0] * jobs
    stems = ["x", "x-2", "x-3", "x-4"]
    files = [f"{s}_{r}{end}" for s in stems for r in REGIMES for end in (".csv", ".ncu-rep")]
    assert names(folder) == sorted(["captures.json", *files])
    entries = index(folder)
    assert sorted((e["label"], e["regime"]) for e in entries) == sorted(
        (s, r.value) for s in stems for r in REGIMES
    )
    texts = [(folder / e["capture"]["csv"]).read_text() for e in entries]
    assert sorted(texts) == sorted(f"job {n} {r}" for n in range(jobs) for r in REGIMES)
    for entry, text in zip(entries, texts, strict=True):
        assert (folder / entry["capture"]["report"]).read_text() == f"report {text}"
    for stem in stems:  # one job's files are all of one stem
        assert len({t.split()[1] for e, t in zip(entries, texts, strict=True)
                    if e["label"] == stem}) == 1  # fmt: skip


def test_entries_of_a_job_stay_together(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    jobs = [opened(folder), opened(folder)]
    for regime in REGIMES:
        for number, job in enumerate(jobs):
            save(job, tmp_path / str(number), regime)
    assert [p.label for p in read_saved(folder)] == ["x", "x", "x-2", "x-2"]
    assert [p.source.regime for p in read_saved(folder)] == [*REGIMES, *REGIMES]


def test_a_label_of_the_index_is_not_given_again(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    for path in vars(save(opened(folder), tmp_path / "1", Regime.WARM)).values():
        path.unlink()
    assert save(opened(folder), tmp_path / "2", Regime.WARM).table.name == "x-2_warm.csv"


def dying(folder: Path, work: Path, while_locked: bool) -> None:
    job = opened(folder)
    if not while_locked:
        shutil.copyfile = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore
        job.keep("warm", *made(work, "warm"))
    with capture_index.locked(folder):
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("while_locked", [True, False])
def test_a_killed_job_blocks_nobody(tmp_path: Path, while_locked: bool) -> None:
    folder = tmp_path / "kept"
    process = SPAWN.Process(target=dying, args=(folder, tmp_path / "1", while_locked))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert save(opened(folder), tmp_path / "2", Regime.WARM).table.name == "x_warm.csv"
    assert [p.label for p in read_saved(folder)] == ["x"]


def test_a_folder_locked_for_ever_is_an_os_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture_index, "_LOCK_WAIT_S", 0.1)
    folder = tmp_path / "kept"
    job = opened(folder)
    with capture_index.locked(folder), pytest.raises(OSError, match="locked"):
        save(job, tmp_path / "work", Regime.WARM)
    assert names(folder) == []
    save(job, tmp_path / "work", Regime.WARM)


def test_a_file_system_without_locks_still_saves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    folder = tmp_path / "kept"
    save(opened(folder), tmp_path / "work", Regime.WARM)
    assert len(read_saved(folder)) == 1


def test_an_existing_file_is_never_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a network folder, where another host's file may appear after the look."""
    folder = tmp_path / "kept"
    job = opened(folder)
    (folder / "x_warm.ncu-rep").write_text("another host's")
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(()))
    assert save(job, tmp_path / "work", Regime.WARM).table.name == "x-2_warm.csv"
    (folder / "x-2_cold.csv").write_text("another host's")
    with pytest.raises(FileExistsError):
        save(job, tmp_path / "work", Regime.COLD)
    monkeypatch.undo()
    assert (folder / "x_warm.ncu-rep").read_text() == "another host's"
    assert (folder / "x-2_cold.csv").read_text() == "another host's"
    assert not (folder / "x_warm.csv").exists()
    assert not (folder / "x-2_cold.ncu-rep").exists()


@pytest.mark.parametrize("failing", [".csv", ".ncu-rep"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_full_disk_leaves_no_partial_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str, error: BaseException
) -> None:
    copy = shutil.copyfile

    def full(old: Path, new: Path) -> None:
        copy(old, new)
        if Path(old).suffix == failing:
            Path(new).write_text("half")
            raise error

    folder = tmp_path / "kept"
    job = opened(folder)
    save(job, tmp_path / "work", Regime.WARM)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr(shutil, "copyfile", full)
    with pytest.raises(type(error)):
        save(job, tmp_path / "work", Regime.COLD)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    monkeypatch.undo()
    assert save(job, tmp_path / "work", Regime.COLD).table.name == "x_cold.csv"


def test_a_full_disk_keeps_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kept"
    save(opened(folder), tmp_path / "1", Regime.WARM)
    before = (folder / "captures.json").read_text()
    job = opened(folder)
    report, table = made(tmp_path / "2", "warm")
    write = Path.write_text

    def full(path: Path, text: str, **how: Any) -> int:
        write(path, text[:10], **how)
        raise OSError(errno.ENOSPC, "No space left")

    files = job.keep("warm", report, table)
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        job.add(source(Regime.WARM), [files])
    monkeypatch.undo()
    assert (folder / "captures.json").read_text() == before
    assert not [name for name in names(folder) if name.endswith(".tmp")]


def test_an_index_damaged_meanwhile_is_an_os_error(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    job = opened(folder)
    (folder / "captures.json").write_text("{")
    with pytest.raises(OSError, match="no JSON"):
        save(job, tmp_path / "work", Regime.WARM)
    assert (folder / "captures.json").read_text() == "{"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one job of two regimes."""
    job = opened(tmp_path / "kept")
    for regime in REGIMES:
        save(job, tmp_path / "work", regime)
    assert len(read_saved(tmp_path / "kept")) == 2
    return tmp_path / "kept"


def refused(folder: Path, kind: type[CaptureError]) -> CaptureError:
    """How the folder is refused: promptly, with its name and a next step."""
    with pytest.raises(CaptureError) as caught:
        read_saved(folder)
    assert type(caught.value) is kind
    assert str(folder) in caught.value.found
    assert caught.value.remedy
    return caught.value


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


@pytest.mark.parametrize("make", [fifo, directory])
def test_an_index_that_is_no_regular_file(folder: Path, make: Callable[[Path], None]) -> None:
    make(folder / "captures.json")
    assert "regular file" in str(refused(folder, DamagedCapture))
    with pytest.raises(UsageError, match="regular file"):
        opened(folder)


@pytest.mark.parametrize("make", [Path.unlink, dangling])
def test_no_index(folder: Path, make: Callable[[Path], None]) -> None:
    make(folder / "captures.json")
    assert "No such file" in str(refused(folder, NotAMetricTable))


def test_an_index_of_nothing(folder: Path, tmp_path: Path) -> None:
    (folder / "captures.json").write_text(
        json.dumps({"schema": capture_index.SCHEMA, "captures": []})
    )
    assert "no capture" in str(refused(folder, NotAMetricTable))
    save(opened(folder), tmp_path / "work", Regime.WARM)  # it may be saved into all the same
    assert len(read_saved(folder)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 200_000,
        '{"a":' * 200_000,
        "1" * 10_000,
        "null",
        "[]",
        '{"schema": "other", "captures": []}',
        f'{{"schema": "{capture_index.SCHEMA}", "captures": {{}}}}',
        f'{{"schema": "{capture_index.SCHEMA}", "captures": [null]}}',
        f'{{"schema": "{capture_index.SCHEMA}", "captures": [{"[" * 100_000}',
    ],
    ids=lambda text: text[:40],
)
def test_an_index_that_is_none(folder: Path, text: str) -> None:
    (folder / "captures.json").write_text(text)
    refused(folder, DamagedCapture)
    with pytest.raises(UsageError):
        opened(folder)


def test_an_index_that_is_no_text_or_too_large(folder: Path) -> None:
    (folder / "captures.json").write_bytes(b"\xff\xfe\x00")
    refused(folder, DamagedCapture)
    os.truncate(folder / "captures.json", 65 << 20)
    assert "MiB" in str(refused(folder, DamagedCapture))


NOT_PLAIN = ("../x_warm.csv", "/etc/passwd", "./x_warm.csv", "a/b", "x/", "..", ".", "")
WRONG_TEXTS = (1, 1.5, True, [], ["x"], {}, "\ud800", "a\0b")


@pytest.mark.parametrize("wrong", WRONG_TEXTS, ids=repr)
@pytest.mark.parametrize(
    "key", ["label", "cache_control", "clock_control", "replay_mode", "ncu_version", "regime"]
)
def test_a_value_that_is_no_text(folder: Path, key: str, wrong: object) -> None:
    broken(folder, {key: wrong})
    assert "number 2" in str(refused(folder, DamagedCapture))


def broken(folder: Path, change: dict[str, Any]) -> None:
    entries = index(folder)
    entries[1] |= change
    document = {"schema": capture_index.SCHEMA, "captures": entries}
    (folder / "captures.json").write_text(json.dumps(document))


@pytest.mark.parametrize("key", ["capture", "residency"])
@pytest.mark.parametrize("kind", ["csv", "report"])
@pytest.mark.parametrize("name", [*NOT_PLAIN, *WRONG_TEXTS], ids=repr)
def test_a_file_name_with_path_parts(folder: Path, key: str, kind: str, name: object) -> None:
    broken(folder, {key: {"csv": "x_warm.csv", "report": None} | {kind: name}})
    assert key in str(refused(folder, DamagedCapture))


@pytest.mark.parametrize(
    "change",
    [
        {"capture": None},
        {"capture": "x_cold.csv"},
        {"capture": {"report": None}},
        {"residency": {}},
        {"residency": []},
        {"regime": None},
        {"regime": "tepid"},
    ],
    ids=repr,
)
def test_an_entry_without_what_it_needs(folder: Path, change: dict[str, Any]) -> None:
    broken(folder, change)
    refused(folder, DamagedCapture)


@pytest.mark.parametrize("make", [Path.unlink, dangling, fifo, directory])
def test_a_capture_that_is_missing_or_no_file(folder: Path, make: Callable[[Path], None]) -> None:
    make(folder / "x_cold.csv")
    assert "x_cold.csv" in str(refused(folder, NotAMetricTable))


def test_a_capture_name_longer_than_any(folder: Path) -> None:
    broken(folder, {"capture": {"csv": "x" * 5000, "report": None}})
    refused(folder, NotAMetricTable)


def test_a_capture_that_is_cut(folder: Path) -> None:
    os.truncate(folder / "x_cold.csv", CSV.stat().st_size - 300)
    assert "x_cold.csv" in str(refused(folder, DamagedCapture))


def test_a_missing_report_costs_nothing(folder: Path) -> None:
    (folder / "x_cold.ncu-rep").unlink()
    assert len(read_saved(folder)) == 2


def test_reading_while_others_save(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    save(opened(kept), tmp_path / "0", Regime.WARM)
    threads = [
        threading.Thread(target=lambda n=n: save(opened(kept), tmp_path / str(n), Regime.WARM))
        for n in range(1, 9)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    while any(t.is_alive() for t in threads) and time.monotonic() < deadline:
        assert read_saved(kept)
    for thread in threads:
        thread.join(60)
    assert len({p.label for p in read_saved(kept)}) == 9
