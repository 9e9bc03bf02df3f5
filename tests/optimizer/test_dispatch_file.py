"""Dispatch tables on the disk: merged, reverted to the byte, and nothing foreign overwritten."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
import time

import pytest
from optimizer.study_samples import ENVIRONMENT, entry, step_entry

from kernel_compass.codec.dispatch_table import decode, encode
from kernel_compass.errors import StudyError
from kernel_compass.optimizer.dispatch_file import merge, read_table, revert
from kernel_compass.records.dispatch import GpuModel, TokenRange

A = [entry("study-a", 1, 1.1), entry("study-a", 2, 1.3, tokens=(64,))]
B = [entry("study-b", 1, 1.2), entry("study-b", 2, 1.1, sizes=(16, 512, 128))]
C = [entry("study-c", 5, 1.05), entry("study-c", 6, 1.2, tokens=(TokenRange(65, 128),))]


def add(path, entries):
    return merge(path, entries, {one.study: ENVIRONMENT for one in entries})


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "compass.json"


def test_the_better_entry_is_in_force_and_other_studies_stay(path):
    add(path, A)
    table = add(path, B)
    in_force = {(one.reference) for one in table.entries}
    assert in_force == {"study-b:1", "study-a:2", "study-b:2"}
    assert [one.reference for one in table.outdone] == ["study-a:1"]
    assert read_table(path) == table
    assert set(table.environments) == {"study-a", "study-b"}


def test_the_order_of_merging_decides_nothing(tmp_path):
    found = set()
    for index, order in enumerate(itertools.permutations((A, B, C))):
        for entries in order:
            add(tmp_path / f"{index}.json", entries)
        found.add((tmp_path / f"{index}.json").read_bytes())
    assert len(found) == 1


def test_a_revert_restores_to_the_byte_what_was_before(path):
    add(path, A)
    before = path.read_bytes()
    add(path, B)
    _, taken = revert(path, "study-b")
    assert path.read_bytes() == before
    assert {one.reference for one in taken} == {"study-b:1", "study-b:2"}


def test_a_revert_in_the_middle_leaves_what_would_be_without_it(tmp_path, path):
    for entries in (A, B, C):
        add(path, entries)
    revert(path, "study-b")
    for entries in (A, C):
        add(tmp_path / "other.json", entries)
    assert path.read_bytes() == (tmp_path / "other.json").read_bytes()


def test_one_trial_is_reverted_alone_and_a_table_with_nothing_left_is_removed(path):
    add(path, A)
    table, _ = revert(path, "study-a", 2)
    assert [one.reference for one in table.contributions] == ["study-a:1"]
    revert(path, "study-a", 1)
    assert not path.exists()
    log = path.with_name("compass.json.log").read_text().splitlines()
    lines = [json.loads(line) for line in log]
    assert [line["action"] for line in lines] == ["merge", "revert", "revert"]
    assert lines[1]["entries"][0]["trial"] == 2  # what was taken out is not lost


def test_changes_to_a_step_come_and_go_to_the_byte(path):
    add(path, A)
    before = path.read_bytes()
    steps = [step_entry(), step_entry("step_graph", trial=2)]
    merge(path, [], {"study-s": ENVIRONMENT}, steps)
    assert b"dispatch-table/2" in path.read_bytes() and len(read_table(path).steps) == 2
    _, taken = revert(path, "study-s", 2)
    assert taken == (steps[1],)
    revert(path, "study-s")
    assert path.read_bytes() == before and b"dispatch-table/1" in before
    revert(path, "study-a")
    assert not path.exists()
    merge(path, [], {"study-s": ENVIRONMENT}, steps)
    assert revert(path, "study-s")[0].empty and not path.exists()
    line = json.loads(path.with_name("compass.json.log").read_text().splitlines()[-1])
    assert line["entries"] == [] and len(line["steps"]) == 2


def test_what_is_not_in_the_table_cannot_be_reverted(path):
    add(path, A)
    before = path.read_bytes()
    for study, trial in (("study-b", None), ("study-a", 9)):
        with pytest.raises(StudyError, match="study-a:1"):
            revert(path, study, trial)
    assert path.read_bytes() == before
    with pytest.raises(StudyError, match="no dispatch table"):
        revert(path.with_name("other.json"), "study-a")


def changed(text, **fields):
    return json.dumps({**json.loads(text), **fields}, indent=2).encode() + b"\n"


OWN = encode(decode(b'{"schema": "kernel-compass/dispatch-table/1", "studies": {}, '
                    b'"entries": [], "outdone": []}')).decode()  # fmt: skip
FOREIGN = {
    "empty": b"",
    "text": b"hello",
    "half": OWN.encode()[:-20],
    "list": b"[]",
    "other schema": changed(OWN, schema="someone/else/1"),
    "newer": changed(OWN, schema="kernel-compass/dispatch-table/3"),
    "half a version 2": changed(OWN, schema="kernel-compass/dispatch-table/2"),
    "version 0": changed(OWN, schema="kernel-compass/dispatch-table/0"),
    "unknown key": changed(OWN, more=1),
    "edited": OWN.replace("  ", "    ").encode(),
    "bytes": bytes(range(256)),
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_not_its_own_is_never_overwritten(tmp_path, name):
    path = tmp_path / "compass.json"
    path.write_bytes(FOREIGN[name])
    for door in (lambda: add(path, A), lambda: revert(path, "study-a")):
        with pytest.raises(StudyError) as error:
            door()
        assert error.value.remedy
        assert path.read_bytes() == FOREIGN[name]
    if name == "newer":
        assert "newer kernel-compass" in error.value.found


def test_a_folder_and_a_pipe_are_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "pipe"):
        with pytest.raises(StudyError):
            add(tmp_path / name, A)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tokens": (0,)},
        {"tokens": (TokenRange(9, 3),)},
        {"tokens": (TokenRange(1, 8), TokenRange(8, 9))},
        {"tokens": ()},
        {"low": -3.0},
        {"low": float("nan")},
        {"sizes": (0, 1, 1)},
        {"trial": 0},
    ],
)
def test_an_entry_that_contradicts_itself_is_not_written(path, wrong):
    with pytest.raises(StudyError):
        add(path, [entry(**wrong)])
    assert not path.exists()


def test_other_gpus_are_other_places(path):
    mig = entry("study-m", 1, 1.01, gpu=GpuModel("NVIDIA H200 MIG 1g.18gb", "9.0", 16))
    add(path, A)
    assert len(add(path, [mig]).entries) == 3


def merge_one(path, number):
    add(path, [entry(f"study-{number}", 1, sizes=(number, 128, 512))])


def test_several_processes_merge_at_once(path):
    path.parent.mkdir()
    context = multiprocessing.get_context("fork")
    runs = [context.Process(target=merge_one, args=(path, n)) for n in range(1, 9)]
    [one.start() for one in runs]
    [one.join(60) for one in runs]
    assert [one.exitcode for one in runs] == [0] * 8
    assert len(read_table(path).entries) == 8


def test_a_kill_leaves_the_old_table_or_the_new(path):
    add(path, A)
    old = path.read_bytes()
    add(path, B)
    new = path.read_bytes()
    for delay in range(20):
        path.write_bytes(old)
        pid = os.fork()
        if pid == 0:
            try:
                while True:
                    add(path, B)
                    revert(path, "study-b")
            finally:
                os._exit(1)
        time.sleep(0.001 * delay)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert path.read_bytes() in (old, new)
    add(path, B)  # a torn line of the log is no obstacle
    assert path.read_bytes() == new
