"""A profiler that "records" the trace named by FAKE_TRACE and plays FAKE_PROFILER's failures."""

import enum
import os
import shutil
import time


class ProfilerActivity(enum.Enum):
    CPU = 0
    CUDA = 2


def supported_activities():
    cpu_only = os.environ.get("FAKE_PROFILER") == "cpu_only"
    return {ProfilerActivity.CPU} | (set() if cpu_only else {ProfilerActivity.CUDA})


class profile:  # noqa: N801
    def __init__(self, activities, record_shapes):
        assert record_shapes is True
        self.activities = list(activities)
        self.state = "new"

    def start(self):
        assert self.state == "new"
        self.state = "recording"
        print("profiler started", flush=True)

    def stop(self):
        assert self.state == "recording"
        if os.environ.get("FAKE_PROFILER") == "sync_fails":
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.state = "stopped"

    def export_chrome_trace(self, path):
        assert self.state == "stopped"
        if os.environ.get("FAKE_PROFILER") == "slow":
            time.sleep(1.0)
        shutil.copyfile(os.environ["FAKE_TRACE"], path)
