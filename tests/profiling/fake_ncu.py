"""An executable that behaves like ncu, for tests: no GPU, no driver.

It runs the target for real, writes a log as ncu does (`==PROF==` lines appear while it works), a
report (JSON here) and, on `--import`, the raw CSV page. The environment says what to play:

    FAKE_NCU_SCENARIO      one of SCENARIOS' keys or the names handled in `profile`; default `ok`
    FAKE_NCU_CALLS         a file that gets one JSON line per call: argv and LC_ALL
    FAKE_NCU_WITHOUT       options, separated by spaces, that this version does not know
    FAKE_NCU_WITH          options that it knows besides
    FAKE_NCU_HANG_COLD     set: the run that flushes caches never ends
    FAKE_NCU_KERNEL_S      seconds a kernel takes, default 0
    FAKE_NCU_LAUNCHES      a JSON file: what is launched, `[name, grid, dram_pct]` each
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

FLAGS = {"--nvtx", "--csv", "--force-overwrite", "--version", "--help"}
OPTIONS = [
    *("--config-file", "--target-processes", "--cache-control", "--clock-control"),
    *("--replay-mode", "--app-replay-match", "--app-replay-mode", "--graph-profiling"),
    *("--check-exit-code", "--import-source", "--import-sass", "--kernel-name-base"),
    *("--kernel-name", "--nvtx", "--nvtx-include", "--launch-skip", "--launch-count"),
    *("--metrics", "--export", "--log-file", "--csv", "--page", "--print-units", "--import"),
    *("--version", "--help"),
]
SHORT = {"--export": "-o", "--import": "-i", "--kernel-name": "-k", "--launch-count": "-c"}
SCENARIOS = {
    "permission": (
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
        "Performance Counters on the target device 0. For instructions see https://x",
    ),
    "driver": ("==ERROR== Cuda driver is not compatible with Nsight Compute.",),
    "busy": (
        "==ERROR== Profiling failed because a driver resource was unavailable. Ensure that no "
        "other tool (like DCGM) is concurrently collecting profiling data.",
        '==ERROR== Failed to profile "k" in process 1',
        "==PROF== Trying to shutdown target application",
        "==ERROR== The application returned an error code (9).",
    ),
    "lock": (
        "==ERROR== Failed to open/create lock file /tmp/nsight-compute-lock. Please check that "
        "this process has write permissions on this file.",
    ),
    "unsupported": ("==ERROR== Profiling is not supported on this device",),
    "badmetric": (
        r"==ERROR== Failed to find metric regex:^derived__x\.(sum|min|max|avg)$",
        '==ERROR== Failed to profile "k" in process 1',
        "==ERROR== The application returned an error code (9).",
    ),
    "memory": (
        "==ERROR== An error was reported by the driver",
        "==ERROR== Unhandled C++ exception: bad allocation",
    ),
}
KERNELS = ("void gemm<float, 4>(const T1 *, int)", "softmax(float *)")
BASE_HEADER = [
    *("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream"),
    *("Block Size", "Grid Size", "Device", "CC"),
]
UNITS = {
    "pct": "%",
    "time_duration": "ns",
    "per_second": "hz",
    "shared_mem_per_block": "byte/block",
    "l2_cache_size": "byte",
    "display_name": "",
}
NUMBERS = {
    "launch__block_size": 128,
    "launch__sm_count": 132,
    "device__attribute_multiprocessor_count": 132,
    "device__attribute_l2_cache_size": 62914560,
}
TEXT_METRICS = {"device__attribute_display_name": "NVIDIA H200"}


def main() -> int:
    options, target = parse(sys.argv[1:])
    record(options, target)
    if "--version" in options:
        print("NVIDIA (R) Nsight Compute Command Line Profiler\nVersion 2025.3.1.0 (build 1)")
        return 0
    if "--help" in options:
        print(help_text())
        return 0
    unknown = [name for name in options if name not in known_options()]
    if unknown:
        print(f"==ERROR== unrecognised option '{unknown[0]}'", file=sys.stderr)
        return 1
    if "--import" in options:
        return export(Path(options["--import"]), Path(options["--log-file"]))
    return profile(options, target)


def parse(words: list[str]) -> tuple[dict[str, str], list[str]]:
    options: dict[str, str] = {}
    while words and words[0].startswith("--"):
        name = words.pop(0)
        options[name] = "" if name in FLAGS else words.pop(0)
    return options, words


def known_options() -> set[str]:
    without = os.environ.get("FAKE_NCU_WITHOUT", "").split()
    return {*OPTIONS, *os.environ.get("FAKE_NCU_WITH", "").split()} - set(without)


def help_text() -> str:
    lines = ["usage: ncu [options] [program] [program-arguments]", "", "General Options:"]
    for name in sorted(known_options()):
        shown = f"{SHORT[name]} [ {name} ]" if name in SHORT else name
        lines.append(f"  {shown} arg (=1)".ljust(40) + "What it does, see --csv-like options.")
    return "\n".join(lines)


def record(options: dict[str, str], target: list[str]) -> None:
    path = os.environ.get("FAKE_NCU_CALLS")
    if path and not {"--version", "--help"} & set(options):
        call = {"options": options, "target": target, "LC_ALL": os.environ.get("LC_ALL")}
        with Path(path).open("a") as file:
            file.write(json.dumps(call) + "\n")


class Log:
    def __init__(self, path: str) -> None:
        self.file = Path(path).open("w", buffering=1)  # noqa: SIM115

    def line(self, text: str) -> None:
        self.file.write(text + "\n")

    def part(self, text: str) -> None:
        self.file.write(text)
        self.file.flush()


def profile(options: dict[str, str], target: list[str]) -> int:
    log = Log(options["--log-file"])
    scenario = os.environ.get("FAKE_NCU_SCENARIO", "ok")
    if scenario == "connect":
        print("==ERROR== Nsight Compute failed to connect to the CUDA driver", file=sys.stderr)
        log.line("==ERROR== The application returned an error code (1).")
        log.line("==WARNING== No kernels were profiled.")
        return 1
    try:
        child = subprocess.Popen(target)
    except OSError:
        log.line(
            f"==ERROR== '{target[0]}' does not exist or is not an executable. Please make sure"
        )
        return 1
    if scenario not in ("no_cuda",):
        log.line(f"==PROF== Connected to process {child.pid} (/usr/bin/python3.12)")
    if scenario in SCENARIOS:
        for line in SCENARIOS[scenario]:
            log.line(line)
        child.kill()
        child.wait()
        log.line("==WARNING== No kernels were profiled.")
        return 1
    if os.environ.get("FAKE_NCU_HANG_COLD") and options["--cache-control"] == "all":
        scenario = "hang"
    if scenario.startswith("hang"):
        hang(scenario, log)
    launches = [] if scenario in ("none", "no_cuda", "broken") else run_kernels(log, scenario)
    code = child.wait()
    code = -code if code < 0 else code
    log.line(f"==PROF== Disconnected from process {child.pid}")
    if code:
        log.line(f"==ERROR== The application returned an error code ({code}).")
    if launches:
        write_report(options, launches)
        log.line(f"==PROF== Report: {options['--export']}")
    elif scenario == "broken":
        Path(options["--export"]).write_text("[]")
    else:
        log.line("==WARNING== No kernels were profiled.")
    return code


def hang(scenario: str, log: Log) -> None:
    """Never end; `hang_nccl` inside a communication kernel, `hang_hard` deaf to signals."""
    if scenario == "hang_nccl":
        log.part('==PROF== Profiling "ncclDevKernel_AllReduce_Sum..." - 0: 0%..')
    if scenario == "hang_warned":
        log.line('==PROF== Profiling "nccl_ring" - 0: 0%..')
        log.line("==WARNING== Launching the workload is taking more time than expected. If this")
    if scenario == "hang_hard":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    subprocess.Popen(["sleep", "600"], process_group=0)  # a grandchild in a group of its own
    time.sleep(600)


def launched() -> list[str]:
    told = os.environ.get("FAKE_NCU_LAUNCHES")
    rows = json.loads(Path(told).read_text()) if told else ()
    return [json.dumps(row) for row in rows] or [*KERNELS, KERNELS[0]]


def run_kernels(log: Log, scenario: str) -> list[str]:
    done: list[str] = []
    pause = float(os.environ.get("FAKE_NCU_KERNEL_S", "0"))
    try:
        for number, kernel in enumerate(launched()):
            short = kernel.split("(")[0].removeprefix("void ").split("<")[0]
            log.part(f'==PROF== Profiling "{short}" - {number}: 0%..')
            time.sleep(pause)
            log.line("..50%....100% - 3 passes")
            done.append(kernel)
            if scenario == "partial" and number == 1:
                time.sleep(600)
    except KeyboardInterrupt:
        log.line("==PROF== Received signal")
    return done


def write_report(options: dict[str, str], launches: list[str]) -> None:
    facts = {key: options.get(key) for key in ("--cache-control", "--replay-mode", "--metrics")}
    Path(options["--export"]).write_text(json.dumps({"launches": launches, **facts}))


def export(report: Path, table: Path) -> int:
    log = Log(str(table))
    if os.environ.get("FAKE_NCU_SCENARIO") == "broken":
        log.line("==ERROR== Failed to load report file.")
        return 1
    facts = json.loads(report.read_text())
    names = sorted({*facts["--metrics"].split(","), "profiler__replayer_passes"})
    log.line(quoted([*BASE_HEADER, *names]))
    log.line(quoted(["" for _ in BASE_HEADER] + [unit(name) for name in names]))
    for number, kernel in enumerate(facts["launches"]):
        told = json.loads(kernel) if kernel.startswith("[") else [kernel, 256, None]
        grid = f"({told[1]}, 1, 1)"
        base = [number, 77, "python3.12", "127.0.0.1", told[0], 1, 7, "(128, 1, 1)", grid]
        values = [value(name, facts, told[1], told[2]) for name in names]
        log.line(quoted([*base, 0, "9.0", *values]))
    return 0


def quoted(cells: list[object]) -> str:
    return ",".join(f'"{cell}"' for cell in cells)


def unit(name: str) -> str:
    for part, text in UNITS.items():
        if part in name:
            return text
    return "byte" if re.search(r"bytes(?!_per_sector)", name) else ""


def value(
    name: str, facts: dict[str, str], blocks: int = 256, dram_pct: float | None = None
) -> object:
    """Few passes leave the program's caches, many warm them, flushing empties them."""
    if dram_pct is not None and "dram" in name and "throughput" in name:
        return dram_pct
    if name == "launch__grid_size":
        return blocks
    one_pass = len(facts["--metrics"].split(",")) < 10
    if os.environ.get("FAKE_NCU_SCENARIO") == "two_passes" and facts["--replay-mode"] == "kernel":
        one_pass = False
    program_state = facts["--replay-mode"] == "application" or one_pass
    if name == "profiler__replayer_passes":
        return 1 if one_pass else 12
    if name in TEXT_METRICS:
        return TEXT_METRICS[name]
    if name in NUMBERS:
        return NUMBERS[name]
    if name.startswith("dram__bytes_read"):
        if facts["--cache-control"] == "all":
            return 20_000_000
        return 16_800_000 if program_state else 1_400_000
    if "time_duration" in name:
        return 9_000 if program_state else 6_000
    if "per_inst_executed" in name or "bytes_per_sector" in name:
        return 16  # of 32
    return 40


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(main())
