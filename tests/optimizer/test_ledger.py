"""The ledger of a study through its doors: nothing is lost, nothing is there twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from optimizer.study_samples import entry, proposal, study, trial

import kernel_compass
from kernel_compass.errors import StudyError
from kernel_compass.optimizer.ledger import Ledger, read_study, trial_sha256
from kernel_compass.optimizer.ledger_lock import writer_of
from kernel_compass.records.study import StudyState, Tell
from kernel_compass.records.trial import Outcome, Reason
from optimizer import ledger_writer

KILLS = 50
WORDS = ("open", "begun", "ended", "accepted")
WORKLOAD = "bmm 16x1x128x512"
WRITER = Path(__file__).with_name("ledger_writer.py")


def child(folder, **options):
    source = str(Path(kernel_compass.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, str(WRITER), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{source}:{Path(__file__).parents[1]}"},
        **options,
    )


def said(process):
    """All lines of a child until it ends, in a thread."""
    lines = []

    def read():
        for line in process.stdout:
            lines.append(line.split())

    reader = threading.Thread(target=read)
    reader.start()
    return lines, reader


def test_what_was_recorded_is_read_again(tmp_path):
    with Ledger.create(study(), tmp_path) as ledger:
        assert ledger.begin(1, WORKLOAD, proposal()) == 1
        ledger.end(trial(1, True), [entry()], [Tell("search", 3, 2.5), Tell("search", 4, None)])
        ledger.end(trial(2, reason=Reason.REMEMBERED))  # never begun: it was not tried
        ledger.set_state(StudyState.FINISHED, "all tried")
        live = ledger.recorded
    found = read_study(tmp_path)
    assert found == live
    assert found.study.request == study().request
    assert found.study.state is StudyState.FINISHED and found.detail == "all tried"
    assert [one.number for one in found.accepted] == [1]
    assert found.entries == (entry(),)
    assert found.tells == (Tell("search", 3, 2.5), Tell("search", 4, None))
    assert found.next_number == 3
    assert len(trial_sha256(found.trials[0])) == 64


def test_a_trial_in_flight_is_tried_again_once_and_then_blamed(tmp_path):
    ledger = Ledger.create(study(), tmp_path)
    ledger.begin(1, WORKLOAD, proposal())
    ledger.close()
    assert read_study(tmp_path).study.state is StudyState.INTERRUPTED
    with Ledger.resume(tmp_path) as again:
        (pending,) = again.recorded.pending
        assert (pending.number, pending.attempts, pending.proposal) == (1, 1, proposal())
        assert again.recorded.interruptions[0].blamed
        assert again.begin(1, WORKLOAD, proposal()) == 2
    with Ledger.resume(tmp_path) as blamed:
        (ended,) = blamed.recorded.trials
        assert (ended.outcome, ended.reason) == (Outcome.FAILED, Reason.CRASHED)
        assert not blamed.recorded.pending


def test_a_trial_that_the_user_stopped_is_not_blamed(tmp_path):
    for attempt in (1, 2, 3, 4):
        opened = Ledger.create(study(), tmp_path) if attempt == 1 else Ledger.resume(tmp_path)
        with opened as ledger:
            assert ledger.begin(1, WORKLOAD, proposal()) == attempt
            ledger.release(1, "Ctrl-C")
            ledger.set_state(StudyState.STOPPED)
    assert len(read_study(tmp_path).pending) == 1


@pytest.mark.parametrize(
    "misuse",
    [
        lambda ledger: ledger.begin(1, WORKLOAD, proposal()),
        lambda ledger: ledger.begin(2, WORKLOAD, proposal()),
        lambda ledger: ledger.end(trial(1)),
        lambda ledger: ledger.end(trial(3, True)),
        lambda ledger: ledger.end(trial(2, proposed=proposal(1))),
        lambda ledger: ledger.end(trial(2), [entry(trial=2)]),
        lambda ledger: ledger.end(trial(2, True), [entry(trial=1)]),
        lambda ledger: ledger.end(trial(2, True), [entry(study="another", trial=2)]),
        lambda ledger: ledger.release(1, "?"),
        lambda ledger: ledger.tell(Tell("search", 1, float("nan"))),
        lambda ledger: ledger.set_state(StudyState.INTERRUPTED),
        lambda ledger: Ledger.create(study(), ledger.folder),
        lambda ledger: Ledger.resume(ledger.folder),
    ],
)
def test_misuse_is_refused_and_changes_nothing(tmp_path, misuse):
    with Ledger.create(study(), tmp_path) as ledger:
        ledger.begin(1, WORKLOAD, proposal())
        ledger.end(trial(1))
        ledger.begin(2, WORKLOAD, proposal())
        before = ledger.recorded
        with pytest.raises(StudyError):
            misuse(ledger)
        assert ledger.recorded == before == read_study(tmp_path)
        ledger.end(trial(2, True), [entry(trial=2)])  # and it still writes


def test_threads_share_a_ledger(tmp_path):
    with Ledger.create(study(), tmp_path) as ledger:

        def work(numbers):
            for number in numbers:
                ledger.begin(number, WORKLOAD, proposal(number))
                ledger.end(trial(number, proposed=proposal(number)))

        threads = [threading.Thread(target=work, args=(range(n, 60, 3),)) for n in (1, 2, 3)]
        [one.start() for one in threads]
        [one.join() for one in threads]
    assert [one.number for one in read_study(tmp_path).trials] == list(range(1, 60))


def test_a_forked_child_does_not_write_and_does_not_unlock(tmp_path):
    with Ledger.create(study(), tmp_path) as ledger:
        pid = os.fork()
        if pid == 0:
            try:
                ledger.begin(1, WORKLOAD, proposal())
            except StudyError:
                ledger.close()
                os._exit(0)
            os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
        assert writer_of(tmp_path) == os.getpid()
        ledger.begin(1, WORKLOAD, proposal())


def test_a_second_writer_is_told_who_writes_and_a_reader_reads(tmp_path):
    folder = tmp_path / "study"
    process = child(folder)
    try:
        lines, reader = said(process)
        wait_for(lambda: len(lines) > 20)
        with pytest.raises(StudyError, match=f"process {process.pid} ") as refused:
            Ledger.resume(folder)
        assert "ledger_writer.py" in str(refused.value)
        assert writer_of(folder) == process.pid
        found = [read_study(folder) for _ in range(5)]
        assert all(one.study.state is StudyState.RUNNING for one in found)
        counts = [len(one.trials) for one in found]
        assert counts == sorted(counts)
    finally:
        process.kill()
        process.wait()
        reader.join()
        process.stdout.close()
    assert writer_of(folder) is None
    with Ledger.resume(folder):  # a dead owner's lock is taken over
        assert writer_of(folder) == os.getpid()


def test_a_kill_at_any_instant_loses_the_trial_in_flight_at_most(tmp_path):
    """Every kill is followed by a reading and the next writer; `accepted` was said after it was
    recorded."""
    chance, counted = random.Random(20251202), 0
    for kill in range(KILLS):
        folder = tmp_path / str(kill // 10)  # ten kills a study: reading takes longer by the row
        if kill % 10 == 0:
            accepted, ended = set(), set()
        said_of = {word: set() for word in WORDS}
        for word, *rest in forked_and_killed(
            folder, chance.uniform(0.0, 0.006), chance.randrange(1, 25)
        ):
            said_of[word] |= set(map(int, rest))
        accepted |= said_of["accepted"]
        ended |= said_of["ended"]
        found = read_study(folder)
        numbers = [one.number for one in found.trials]
        kept = {one.number for one in found.accepted}
        assert accepted <= kept and ended <= set(numbers)
        assert said_of["begun"] <= {*numbers, *(one.number for one in found.pending)}
        assert len(kept - accepted) <= 1  # recorded, and killed before it was said
        accepted |= kept
        counted += len(said_of["accepted"])
        assert numbers == sorted(set(numbers))
        assert [one.trial for one in found.entries] == sorted(kept)
        told = [one.index for one in found.tells]
        assert len(told) == len(set(told))
    assert counted > KILLS


def test_a_kill_while_the_ledger_is_made_leaves_it_whole_or_none(tmp_path):
    chance, made = random.Random(7), 0
    for index in range(40):
        folder = tmp_path / str(index)
        forked_and_killed(folder, chance.uniform(0, 0.004), 0)
        if (folder / "ledger.sqlite").exists():
            made += 1
            assert read_study(folder).study.request == study().request
        elif folder.exists():
            with pytest.raises(StudyError, match="before it began"):
                read_study(folder)
            Ledger.create(study(), folder).close()
            assert sorted(p.name for p in folder.iterdir()) == ["ledger.sqlite", "writer.lock"]
    assert made < 40


def forked_and_killed(folder, seconds, said):
    """The lines of a writer that is killed some time after it said so many."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.dup2(writable, 1)
            sys.stdout = os.fdopen(1, "w")
            ledger_writer.main(folder)
        finally:
            os._exit(1)
    os.close(writable)
    with os.fdopen(readable) as lines:
        first = "".join(lines.readline() for _ in range(said))
        time.sleep(seconds)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        whole = (first + lines.read()).splitlines(keepends=True)
    return [line.split() for line in whole if line.endswith("\n")]


def test_a_ledger_that_is_removed_while_it_is_written_ends_the_run(tmp_path):
    with Ledger.create(study(), tmp_path) as ledger:
        (tmp_path / "ledger.sqlite").unlink()
        with pytest.raises(StudyError, match="removed or replaced"):
            ledger.begin(1, WORKLOAD, proposal())


def test_a_thousand_rows_are_read_within_seconds(tmp_path):
    with Ledger.create(study(), tmp_path) as ledger:
        for number in range(1, 1001):
            ledger.tell(Tell("search", number, 1.0))
    began = time.process_time()
    assert len(read_study(tmp_path).tells) == 1000
    assert time.process_time() - began < 2


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the child said nothing"
        time.sleep(0.002)
