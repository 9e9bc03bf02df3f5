"""Programs captured in a process of their own: what is seen, and that nothing is changed."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from api import step_programs as programs

from kernel_compass.analysis.step_shares import workloads_of
from kernel_compass.api.step_capturing import capture_program
from kernel_compass.api.step_program import Program, ProgramKind, program_files, program_of
from kernel_compass.errors import ProfilingCause, ProfilingError, UsageError
from kernel_compass.optimizer.step_kinds import step_product
from kernel_compass.profiling.step_running import entry_of
from kernel_compass.records.step_capture import RegionKind, StepCapture, StepOp, StepTensor

pytest.importorskip("torch")
SOURCE = Path(__file__).parents[2] / "src"
EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Ran:
    """A program's capture, and its output with and without."""

    capture: StepCapture
    captured_output: str
    plain_output: str
    plain_code: int


def write(folder: Path, text: str, name: str = "step.py") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def captured(program: Program, **options: object) -> tuple[StepCapture, str]:
    with tempfile.TemporaryFile() as output:
        found = capture_program(program, target_stdout=output.fileno(), **options)  # type: ignore[arg-type]
        output.seek(0)
        return found, output.read().decode()


def both(folder: Path, text: str, *arguments: str) -> Ran:
    """Run a program by itself, and captured."""
    file = write(folder, text)
    plain = subprocess.run(
        [sys.executable, str(file), *arguments],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    found, output = captured(Program(ProgramKind.SCRIPT, str(file), arguments))
    return Ran(found, output, plain.stdout, plain.returncode)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return both(tmp_path_factory.mktemp("plain"), programs.PLAIN, "--a", "b")


def names(capture: StepCapture) -> list[str]:
    return [op.name.removeprefix("aten::") for op in capture.ops]


def named(capture: StepCapture, name: str) -> list[StepOp]:
    return [op for op in capture.ops if op.name == f"aten::{name}"]


def told(capture: StepCapture) -> list[str]:
    """`what @ line` of everything that is not handled."""
    return [
        f"{one.what} @ {one.line.file}:{one.line.line}" for one in capture.not_handled if one.line
    ]


def line_of(text: str, part: str) -> int:
    """The line of a program that holds a part."""
    return next(n for n, line in enumerate(text.splitlines(), 1) if part in line)


def test_a_script_is_captured_and_prints_what_it_prints_alone(plain: Ran) -> None:
    assert plain.captured_output == plain.plain_output != ""
    found = plain.capture
    assert (found.program, found.step) == ("step.py", "Block.forward")
    assert "the program called it 3 times" in found.notes
    assert [op.module for op in named(found, "addmm")] == ["first", "second"]
    # The second product adds its bias to what the first made.
    first, second = named(found, "addmm")
    assert second.line is not None
    assert second.line.text.startswith("step.py:")
    assert second.line.function == "Block.forward"
    assert first.inputs[0].name == "first.bias"
    assert first.inputs[2].name == "first.weight"
    assert first.inputs[2].constant
    assert first.inputs[2].strides == (1, 8)
    assert not first.inputs[1].constant
    assert [w.shape_text for w in workloads_of(found).values()] == [
        "linear 3x16x8",
        "linear 3x8x16",
    ]
    assert set(found.files) == {"step.py"}
    assert found.kernels == ()
    assert found.step_us is not None
    assert found.step_us > 0


def test_what_the_step_writes_is_not_constant_and_buffers_are(plain: Ran) -> None:
    found = plain.capture
    tensors = {t.name: t for op in found.ops for t in op.inputs if t.name}
    assert tensors["scale"].constant
    assert not tensors["cache"].constant
    (write,) = [op for op in found.ops if op.writes]
    assert write.inputs[0].name == "cache"
    assert write.line is not None
    assert write.line.line == line_of(programs.PLAIN, "self.cache[at]")


def test_exit_code_arguments_and_standard_input_are_the_programs(
    tmp_path: Path, plain: Ran
) -> None:
    file = write(tmp_path, programs.EXITS)
    told = tmp_path / "input"
    told.write_text("told\n")
    kept = os.dup(0)
    try:
        with told.open() as given:
            os.dup2(given.fileno(), 0)
        found, output = captured(Program(ProgramKind.SCRIPT, str(file), ("--a", "b")))
    finally:
        os.dup2(kept, 0)
        os.close(kept)
    assert output == f"{plain.plain_output}told\n"
    assert "the program ended with exit code 3" in found.notes
    assert found.ops == plain.capture.ops


def test_an_exception_at_the_end_leaves_the_capture(
    tmp_path: Path, plain: Ran, capfd: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, programs.RAISES)
    found, output = captured(Program(ProgramKind.SCRIPT, str(file), ("--a", "b")))
    assert output == plain.plain_output
    assert "the program ended with exit code 1" in found.notes
    said = capfd.readouterr().err
    assert "ValueError: at the end" in said
    assert "kernel_compass" not in said


def test_custom_autograd_is_named_and_its_operators_are_there(tmp_path: Path) -> None:
    ran = both(tmp_path, programs.CUSTOM_AUTOGRAD)
    assert ran.captured_output == ran.plain_output
    line = line_of(programs.CUSTOM_AUTOGRAD, "Scale.apply")
    assert f"autograd.Function Scale @ step.py:{line}" in told(ran.capture)
    assert "mul" in names(ran.capture)


def test_a_step_that_grows_is_said_to(tmp_path: Path) -> None:
    ran = both(tmp_path, programs.GROWS)
    assert ran.captured_output == ran.plain_output
    line = line_of(programs.GROWS, "torch.cat")
    assert told(ran.capture) == [f"dynamic shapes between steps @ step.py:{line}"]


def test_operators_of_threads_are_a_region(tmp_path: Path) -> None:
    ran = both(tmp_path, programs.THREADS)
    assert ran.captured_output == ran.plain_output
    assert {"sin", "cos", "add"} <= set(names(ran.capture))
    (sine,), (add,) = named(ran.capture, "sin"), named(ran.capture, "add")
    assert sine.region is not None
    assert ran.capture.regions[sine.region].kind is RegionKind.THREAD
    assert add.region is None


def test_a_sub_process_is_named(tmp_path: Path) -> None:
    ran = both(tmp_path, programs.SUBPROCESS)
    assert ran.captured_output == ran.plain_output
    line = line_of(programs.SUBPROCESS, "subprocess.run")
    assert told(ran.capture) == [f"a sub-process @ step.py:{line}"]


def test_control_flow_by_data_is_named_with_its_line(tmp_path: Path) -> None:
    ran = both(tmp_path, programs.DATA_DEPENDENT)
    assert ran.captured_output == ran.plain_output
    lines = {one.line.line for one in ran.capture.not_handled if one.line}
    assert lines == {
        line_of(programs.DATA_DEPENDENT, "if x.sum()"),
        line_of(programs.DATA_DEPENDENT, "return x[x > 0]"),
    }


def test_a_compiled_function_is_a_region_and_stays_compiled(tmp_path: Path) -> None:
    ran = both(tmp_path, programs.COMPILED)
    assert ran.captured_output == ran.plain_output
    (region,) = ran.capture.regions
    assert (region.kind, region.name) == (RegionKind.COMPILED, "norm")
    assert region.line is not None
    assert region.line.line == line_of(programs.COMPILED, "def norm")
    assert names(ran.capture) == ["t", "addmm", "add"]  # nothing of the region, no eager copy of it


def test_what_a_compiled_region_computes_is_known_beside_it(tmp_path: Path) -> None:
    ran = both(tmp_path, programs.COMPILED_PRODUCT)
    assert ran.captured_output == ran.plain_output
    assert names(ran.capture) == ["add", "mul"]
    product = next(op for op in ran.capture.inside if op.name == "aten::mm")
    assert [one.name.removeprefix("aten::") for one in ran.capture.inside] == [
        "add_",
        "mm",
        "relu",
        "add",
    ]
    assert product.region == 0 and product.line is not None
    assert product.line.line == line_of(programs.COMPILED_PRODUCT, "torch.relu(x @")
    assert [one.constant for one in product.inputs] == [False, True]
    assert product.inputs[1].name == "weight"
    last = ran.capture.inside[-1]
    assert [one.name for one in last.inputs if one.name] == ["seen"]
    assert not any(one.constant for one in last.inputs)  # the region writes it


def test_a_region_that_cannot_run_without_compiling_stays_closed(tmp_path: Path) -> None:
    ran = both(tmp_path, programs.NOT_EAGER)
    assert ran.captured_output == ran.plain_output == "[2.0, 2.0]\n"
    assert ran.capture.inside == () and len(ran.capture.regions) == 1
    assert any("not known: MemoryError: whole scores" in one for one in ran.capture.notes)


def test_a_graph_break_is_named_with_its_line(tmp_path: Path) -> None:
    ran = both(tmp_path, programs.GRAPH_BREAK)
    assert ran.captured_output == ran.plain_output
    assert ran.capture.step == "step()"
    line = line_of(programs.GRAPH_BREAK, 'print("inside")')
    assert told(ran.capture) == [f"graph break @ step.py:{line}"]
    assert ran.capture.regions[0].kind is RegionKind.COMPILED


def test_triton_launches_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    ran = both(tmp_path, programs.TRITON)
    assert ran.captured_output == ran.plain_output
    (launch,) = ran.capture.launches
    assert (launch.kernel, launch.grid) == ("scale_kernel", (2,))
    assert launch.config == {"BLOCK": 32, "num_warps": 2}
    assert launch.arguments["n"] == 40
    x = launch.arguments["x"]
    assert isinstance(x, StepTensor)
    assert x.shape == (40,)
    assert launch.line is not None
    assert launch.line.line == line_of(programs.TRITON, "scale_kernel[lambda")
    assert launch.kernel_line.line == line_of(programs.TRITON, "def scale_kernel") - 1
    assert names(ran.capture) == ["empty_like", "add"]  # nothing of the interpreter's own
    assert launch.after_op == 1


def test_a_script_without_modules_is_its_own_step(tmp_path: Path) -> None:
    ran = both(tmp_path, programs.NO_MODULE)
    assert ran.captured_output == ran.plain_output
    assert ran.capture.step == "step.py"
    assert {"mv", "mm"} & set(names(ran.capture))


def test_entries(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, programs.ENTRIES)
    found, output = captured(Program(ProgramKind.ENTRY, f"{file}:returned"))
    assert output == "loaded step\n"
    assert (found.program, found.step) == ("step.py:returned", "returned()")
    assert [op.module for op in named(found, "addmm")] == ["block.first", "block.second"]
    assert named(found, "addmm")[0].inputs[2].name == "block.first.weight"


def test_a_training_step_with_a_compiled_module(tmp_path: Path) -> None:
    file = write(tmp_path, programs.TRAINING)
    found, _ = captured(Program(ProgramKind.ENTRY, f"{file}:training"))
    (region,) = found.regions
    assert (region.kind, region.name) == (RegionKind.COMPILED, "Sequential.forward")
    assert region.line is not None
    assert region.line.file == "torch/nn/modules/container.py"
    assert {op.line.file for op in found.ops if op.line} == {"step.py"}
    assert "addcdiv_" in names(found)
    line = line_of(programs.TRAINING, "optimizer.step()")
    assert any(f":{line}" in one for one in told(found))  # AdamW reads its step's number out
    weights = {t.name for op in found.ops for t in op.inputs if t.name and t.constant}
    assert weights == set()  # all of them are written


def test_entries_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "not_one", None)
    file = write(tmp_path, programs.ENTRIES, "not_one.py")
    with pytest.raises(UsageError, match=r"no function 'not_callable'.*returned, called"):
        entry_of(Program(ProgramKind.ENTRY, f"{file}:not_callable"))
    text = write(tmp_path, "", "not_one.txt")
    with pytest.raises(UsageError, match="no Python file"):
        entry_of(Program(ProgramKind.ENTRY, f"{text}:step"))


def test_a_module_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "tool"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "parts.py").write_text(programs.BLOCK)
    (package / "__main__.py").write_text(
        "import sys, torch\nfrom tool.parts import Block\n"
        "print(Block()(torch.ones(2, 8)).shape, __name__, sys.argv[1:])\n"
    )
    monkeypatch.chdir(tmp_path)
    program = program_of(module="tool", arguments=["-x"])
    assert program_files(program)[0][0] == package / "__main__.py"
    found, output = captured(program)
    assert output == "torch.Size([2, 8]) __main__ ['-x']\n"
    lines = {op.line.file for op in found.ops if op.line}
    assert lines == {"tool/parts.py"}
    assert set(found.files) == {"tool/__init__.py", "tool/__main__.py", "tool/parts.py"}


def test_programs_that_fail(tmp_path: Path) -> None:
    fails = write(tmp_path, "import torch\nraise RuntimeError('early')\n", "fails.py")
    with pytest.raises(ProfilingError, match="exit code 1 before it called a module"):
        captured(Program(ProgramKind.SCRIPT, str(fails)))
    leaves = write(tmp_path, "import os\nos._exit(5)\n", "leaves.py")
    with pytest.raises(ProfilingError, match="exit code 5 before its step"):
        captured(Program(ProgramKind.SCRIPT, str(leaves)))
    twice = programs.BLOCK + (
        "class Once(torch.nn.Module):\n"
        "    used = False\n"
        "    def forward(self, x):\n"
        "        assert not self.used, 'used up'\n"
        "        self.used = True\n"
        "        return x\n"
        "print(Once()(torch.ones(1)))\n"
    )
    with pytest.raises(ProfilingError, match=r"cannot be called once more.*used up.*step\.py"):
        captured(Program(ProgramKind.SCRIPT, str(write(tmp_path, twice))))


def test_a_time_out_ends_the_program_and_all_it_started(tmp_path: Path) -> None:
    child = tmp_path / "child"
    text = (
        "import subprocess, sys, time\n"
        f"p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(child)!r}, 'w').write(str(p.pid))\n"
        "time.sleep(600)\n"
    )
    file = write(tmp_path, text)
    with pytest.raises(ProfilingError) as error:
        captured(Program(ProgramKind.SCRIPT, str(file)), timeout_s=8.0)
    assert error.value.cause is ProfilingCause.TIMEOUT
    assert not _alive(int(child.read_text()))


def test_an_interrupt_ends_the_program(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    file = write(
        tmp_path,
        f"import os, time\nopen({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n",
    )
    code = (
        "import sys\nfrom kernel_compass.cli.main import main\n"
        f"sys.exit(main(['capture', '--yes', '--script', {str(file)!r}]))\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "KERNEL_COMPASS_HOME": str(tmp_path)}
    tool = subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE)
    end = time.monotonic() + 60
    while not (mark.exists() and mark.read_text()) and time.monotonic() < end:
        time.sleep(0.05)
    tool.send_signal(signal.SIGINT)
    _, said = tool.communicate(timeout=60)
    assert tool.returncode == 130
    assert b"Traceback" not in said
    assert not _alive(int(mark.read_text()))


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_a_held_step_is_reset_and_leaves_torch_as_it_was(tmp_path: Path) -> None:
    """Called any number of times it answers the same after a reset; nothing stays patched."""
    file = write(tmp_path, programs.PLAIN)
    code = f"""
import sys, threading
import torch
from concurrent.futures import ThreadPoolExecutor
from kernel_compass.api.step_program import Program, ProgramKind, open_step
def doors():
    return [torch.compile, torch.nn.Module.__call__, torch.cuda.CUDAGraph.replay,
            torch.autograd.Function.__dict__["apply"], threading.Thread.start,
            ThreadPoolExecutor.submit]
before = doors()
step = open_step(Program(ProgramKind.SCRIPT, {str(file)!r}))
assert all(a is b for a, b in zip(before, doors(), strict=True))
cache = step.roots()[""].cache
kept = cache.clone()
first = step.call()
second = step.call()
step.reset()
assert torch.equal(cache, kept)
assert torch.equal(step.call(), first)
assert set(step.roots()) == {{"", "first", "second"}}, step.roots()
assert list(step.files) == ["step.py"]
A = torch.profiler.ProfilerActivity
with torch.profiler.profile(activities=[A.CPU]) as profiler:
    recorded = step.recorder().record(step.call, ranges="kc:0:")
assert all(a is b for a, b in zip(before, doors(), strict=True))
profiler.export_chrome_trace({str(tmp_path / "trace.json")!r})
print([op.name for op in recorded.ops])
print("fine", torch.is_grad_enabled(), first.requires_grad)
"""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *_, names_, last = done.stdout.splitlines()
    assert last == "fine True False"
    _check_ranges(tmp_path / "trace.json", ast.literal_eval(names_))


def _check_ranges(trace: Path, names: list[str]) -> None:
    """The profiler's range of every operator holds that operator, and begins with it."""
    events = json.loads(trace.read_text())["traceEvents"]
    spans = [(e["ts"], e["ts"] + e["dur"], e) for e in events if e.get("ph") == "X"]
    marks = {e["name"]: (a, b) for a, b, e in spans if e["cat"] == "user_annotation"}
    assert {name for name in marks if name.startswith("kc:")} == {
        f"kc:0:o{n}" for n in range(len(names))
    }
    ops = [(a, b, e["name"]) for a, b, e in spans if e["cat"] == "cpu_op"]
    for n, name in enumerate(names):
        start, end = marks[f"kc:0:o{n}"]
        inside = sorted(one for one in ops if start <= one[0] and one[1] <= end)
        assert inside[0][2] == name


def test_names_of_programs() -> None:
    with pytest.raises(UsageError, match="No program"):
        program_of()
    with pytest.raises(UsageError, match="Several programs"):
        program_of(script="a.py", module="b")
    with pytest.raises(UsageError, match="names no function"):
        program_of(entry="a.py")
    with pytest.raises(UsageError, match=r"no file nowhere\.py"):
        program_of(script="nowhere.py")
    with pytest.raises(UsageError, match=r"no module no\.such"):
        program_files(program_of(module="no.such"))


@pytest.mark.gpu
def test_the_decoder_blocks_kernels_are_joined_to_lines() -> None:
    from kernel_compass.analysis.step_groups import groups_of
    from kernel_compass.analysis.step_shares import joined_share

    found, _ = captured(Program(ProgramKind.SCRIPT, str(EXAMPLES / "decoder_block.py")))
    share = joined_share(found)
    assert share is not None
    assert share >= 0.95
    assert found.step_us is not None
    assert found.idle_us is not None
    assert found.idle_us < found.step_us
    assert any(k.floor_us for k in found.kernels)
    assert groups_of(found)


@pytest.mark.gpu
def test_a_step_that_the_program_replays_as_a_graph_is_timed_as_one() -> None:
    eager, _ = captured(Program(ProgramKind.SCRIPT, str(EXAMPLES / "decoder_block.py")))
    program = Program(ProgramKind.SCRIPT, str(EXAMPLES / "decoder_block.py"), ("--graph",))
    found, _ = captured(program)
    assert found.in_graph
    assert found.step_us is not None
    assert eager.step_us is not None
    assert found.step_us < eager.step_us
    assert [op.name for op in found.ops] == [op.name for op in eager.ops]


@pytest.mark.ncu
@pytest.mark.parametrize("arguments", [(), ("--graph",)])
def test_ncus_counters_say_what_limits_each_kernel_of_the_step(arguments: tuple[str, ...]) -> None:
    program = Program(ProgramKind.SCRIPT, str(EXAMPLES / "decoder_block.py"), arguments)
    found, _ = captured(program, counters=True)
    time = sum(one.time_us for one in found.kernels)
    counted = [one for one in found.kernels if one.counted]
    assert sum(one.time_us for one in counted) >= 0.9 * time, found.notes
    assert all(one.limiter for one in counted)
    assert any(one.floor_basis == "traffic" for one in counted)


def test_products_with_weights_made_in_inference_mode_are_named(tmp_path: Path) -> None:
    text = """import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.down = torch.nn.Linear(32, 16, bias=False)

    def forward(self, x):
        return self.down(x)

with torch.inference_mode(MADE):
    model = Model()
with torch.inference_mode():
    model(torch.ones(4, 32))
"""
    program = Program(ProgramKind.SCRIPT, str(write(tmp_path, text.replace("MADE", "True"))))
    found, _ = captured(program)
    assert told(found) == ["weight down.weight made in inference mode @ step.py:9"]
    (product,) = named(found, "mm")
    assert product.inputs[1].constant
    assert step_product(product) is None  # nothing is proposed that would be refused
    write(tmp_path, text.replace("MADE", "False"))
    counted, _ = captured(program)
    assert told(counted) == []
    assert step_product(named(counted, "mm")[0]) is not None


def test_counters_of_a_program_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ncu is asked for before the program runs, and run only where there is a GPU to count."""
    file = write(tmp_path, programs.PLAIN)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("KERNEL_COMPASS_NCU", raising=False)
    monkeypatch.setattr("kernel_compass.profiling.ncu_tool._PLACES", ())
    with pytest.raises(ProfilingError):
        captured(Program(ProgramKind.SCRIPT, str(file)), counters=True)
