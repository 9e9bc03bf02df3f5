"""Binary reports (`.ncu-rep`), read by NVIDIA's `ncu-report` package or by ncu itself."""

from __future__ import annotations

import json
import math
import mmap
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_compass.errors import DamagedCapture, MissingDependency, NotAMetricTable
from kernel_compass.profiling import report_dump
from kernel_compass.profiling.launch_table import DeviceCells, Group, LaunchTable
from kernel_compass.profiling.metric_cells import read_metric_cells
from kernel_compass.profiling.metrics import BY_NAME, DEVICE_NAMES, DURATION_NAMES
from kernel_compass.profiling.ncu_csv import CsvCapture
from kernel_compass.profiling.rule_cells import RuleBook, message_kind, plain_message
from kernel_compass.profiling.text_source import TextSource
from kernel_compass.records.profile import Dim3, SourceFormat

REPORT_MAGIC = b"NVR\0"
TIMEOUT_S = 600.0
"""Reading a report of a gigabyte takes well under a minute."""

_PLACE = (
    *(f"launch__{what}_dim_{d}" for what in ("grid", "block") for d in "xyz"),
    "launch__device_id",
    "device__attribute_compute_capability_major",
    "device__attribute_compute_capability_minor",
)
_WANTED = (*BY_NAME, *DURATION_NAMES, *DEVICE_NAMES.values(), *_PLACE)
_COMMAND = re.compile(rb"[/\\]ncu(?:\.exe)?\"? ([\x20-\x7e]{1,8000})")
_VERSION = re.compile(rb"(\d{4}\.\d{1,2}\.\d{1,2})(?:\.\d+)? \(build \d+\)")
_NOT_READ = "Check the file with: ncu --import X.ncu-rep --page raw"


@dataclass(frozen=True)
class Report:
    """A report, read."""

    table: LaunchTable
    format: SourceFormat
    cache_control: str | None
    clock_control: str | None
    replay_mode: str | None
    ncu_version: str | None


def read_report(path: Path, compression: str | None) -> Report:
    """Read a report with whichever reader is there.

    Args:
        path: the file.
        compression: how the file is compressed, if it is.

    Raises:
        DamagedCapture: the reader refuses the file, or finds no launch in it.
        MissingDependency: there is no reader.
    """
    if compression:
        return _read_unpacked(path, compression)
    facts = _session_facts(path)
    table = _read_with_package(path)
    if table is None:
        table = _read_with_ncu(path)
    return Report(table, SourceFormat.NCU_REP, *facts)


LARGEST_UNPACKED = 1 << 30
"""Bytes a compressed report may unpack to; a larger one is read unpacked."""


def _read_unpacked(path: Path, compression: str) -> Report:
    """Unpack a compressed report beside nothing of the user's, and read it."""
    import gzip
    import lzma
    import zlib

    opener = gzip.open if compression == "gzip" else lzma.open
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "report.ncu-rep"
        try:
            with opener(path, "rb") as packed, plain.open("wb") as unpacked:
                while chunk := packed.read(1 << 20):
                    if unpacked.tell() > LARGEST_UNPACKED:
                        raise ValueError(f"it unpacks to more than {LARGEST_UNPACKED >> 30} GiB")
                    unpacked.write(chunk)
        except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error) as error:
            raise DamagedCapture(f"{path} cannot be unpacked: {error}.") from error
        return read_report(plain, None)


def _session_facts(path: Path) -> tuple[str | None, str | None, str | None, str | None]:
    """Cache, clock and replay mode and ncu's version, from the session a report records."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        version = _VERSION.search(data)
        commands = deque(_COMMAND.finditer(data), maxlen=1)  # the session comes last in the file
        text = commands[0][1].decode("ascii") if commands else None
        number = version[1].decode("ascii") if version else None
    if text is None:
        return None, None, None, number
    return (
        _option(text, "--cache-control", "all"),
        _option(text, "--clock-control", "base"),
        _option(text, "--replay-mode", "kernel"),
        number,
    )


def _option(command: str, name: str, default: str) -> str:
    match = re.search(rf"{name}[ =](\w+)", command)
    return match[1] if match else default


def _read_with_package(path: Path) -> LaunchTable | None:
    """Read through `ncu_report` in a child process; `None` where the package is missing."""
    command = [sys.executable, "-P", report_dump.__file__, str(path.absolute())]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = _run(command, path, environment, json.dumps(_WANTED))
    if done.returncode == report_dump.MISSING_PACKAGE:
        return None
    if done.returncode:
        raise _refused(path, done.stderr or f"the reader ended with code {done.returncode}")
    table = LaunchTable()
    try:
        for number, launch in enumerate(_launches(done.stdout)):
            _add_launch(table, number, launch)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _refused(path, f"its contents make no sense ({error})") from error
    if not len(table):
        raise _refused(path, "it holds no launch")
    return table


def _run(
    command: list[str], path: Path, environment: Mapping[str, str], stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            env=dict(environment),
            timeout=TIMEOUT_S,
            check=False,
            encoding="utf-8",
            errors="replace",
        )
    except subprocess.TimeoutExpired as error:
        raise _refused(path, f"the reader did not end within {TIMEOUT_S:.0f} s") from error
    except OSError as error:
        raise MissingDependency(f"{command[0]} cannot be started: {error}.") from error


def _refused(path: Path, reason: str) -> DamagedCapture:
    lines = [line for line in reason.splitlines() if line.strip()] or [reason]
    return DamagedCapture(
        f"{path} is a report that cannot be read: {lines[-1].strip()[:300]}.", _NOT_READ
    )


def _launches(text: str) -> Iterator[dict[str, Any]]:
    for line in text.splitlines():
        yield json.loads(line)


def _add_launch(table: LaunchTable, number: int, launch: dict[str, Any]) -> None:
    name = launch["name"]
    if not isinstance(name, str) or not name.isprintable() or not launch["metrics"]:
        raise ValueError(f"launch {number} has no readable name or no metrics")
    values = {name: value for name, _, value in launch["metrics"]}
    device = values.get("launch__device_id")
    group = Group(
        None if device is None else int(device),
        launch["name"],
        _dims(values, "grid"),
        _dims(values, "block"),
    )
    index, _ = table.launch(("", number, group.device), group)
    _describe_device(table, group.device, values)
    for name, unit, value in launch["metrics"]:
        if name not in _PLACE:
            _add_metric(table, index, name, unit, value)
    book = table.rules.setdefault(table.group_of[index], RuleBook())
    for rule in launch["rules"]:
        speedup = rule["speedup"]
        text = plain_message(rule["text"])
        book.add(
            rule["name"],
            message_kind(rule["kind"]),
            text,
            "" if speedup is None else f"{float(speedup):.3f}",
        )


def _add_metric(table: LaunchTable, launch: int, name: str, unit: str, value: object) -> None:
    cell = read_metric_cells(name, "" if value is None else unit, labels=False)
    if value is None:
        cell = next((c.cell for (n, _), c in table.columns.items() if n == name), cell)
    column = table.column(name, unit, cell)
    table.mark(launch, column.bit)
    if isinstance(value, int | float) and math.isfinite(value) and cell.key:
        table.put(column, launch, float(value))


def _dims(values: dict[str, Any], what: str) -> Dim3 | None:
    dims = [int(values.get(f"launch__{what}_dim_{d}") or 0) for d in "xyz"]
    return (dims[0], dims[1], dims[2]) if all(dims) else None


def _describe_device(table: LaunchTable, device: int | None, values: dict[str, Any]) -> None:
    if device in table.devices:
        return
    major, minor = (
        values.get(f"device__attribute_compute_capability_{part}") for part in ("major", "minor")
    )
    known = major is not None and minor is not None
    cells = DeviceCells(f"{int(major or 0)}.{int(minor or 0)}" if known else None)
    for field, name in DEVICE_NAMES.items():
        value = values.get(name)
        if value is not None:
            cells.fields[field] = str(value) if field == "name" else float(value)
    table.devices[device] = cells


def _read_with_ncu(path: Path) -> LaunchTable:
    """Export the report with the installed ncu and read the export."""
    ncu = shutil.which("ncu")
    if ncu is None:
        raise MissingDependency(
            f"{path} is a binary report, and nothing here can read it.",
            "Install a reader: pip install ncu-report, or put ncu on PATH.",
        )
    command = [ncu, "--import", str(path.absolute()), "--page", "raw", "--csv"]
    environment = {**os.environ, "LC_ALL": "C"}
    done = _run([*command, "--print-units", "base"], path, environment)
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "export.csv"
        exported.write_text(done.stdout or done.stderr or "no output", encoding="utf-8")
        try:
            return CsvCapture(TextSource(exported)).table
        except NotAMetricTable as error:
            said = done.stderr or done.stdout or f"ncu ended with code {done.returncode}"
            raise _refused(path, said) from error
