"""The edit that stands for a table's changes, made in a copy of a script.

What has a plain spelling is written so: a decorator, a switch, numbers at a kernel's launch. What
has none is put on by `kernel_compass.applied` at the program's start.
"""

from __future__ import annotations

import ast
import difflib
import io
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernel_compass.access import unreadable
from kernel_compass.api.actions.finding import changed_file, changed_package, named_by, same_file
from kernel_compass.api.actions.marking import Function, functions_named
from kernel_compass.errors import StudyError, UsageError
from kernel_compass.optimizer.dispatch_file import read_table
from kernel_compass.records.dispatch import DispatchTable
from kernel_compass.records.step_action import StepAction, StepActionKind, StepEntry
from kernel_compass.records.step_capture import LAUNCH_OPTIONS

_PLAIN = (
    StepActionKind.TRITON_CONFIG,
    StepActionKind.MATMUL_PRECISION,
    StepActionKind.COMPILE_REGION,
)
"""Kinds that may have a plain spelling."""
_BOUND = frozenset(["staticmethod", "classmethod", "property", "cached_property"])


@dataclass(frozen=True)
class SourcePatch:
    """A script with the edit."""

    text: str
    diff: str
    """Unified."""
    written: tuple[str, ...]
    """Changes that are plain code now."""
    applied: tuple[str, ...]
    """Changes that `kernel_compass.applied` puts on."""
    left_out: tuple[str, ...]
    """Those that are not for this script, or for another version of it; each with its reason."""


@dataclass
class _Edits:
    """Of one file, by line and place in it; made from the end backwards."""

    replaced: list[tuple[int, int, int, int, str]] = field(default_factory=list)
    """First line and column, last line and column (in bytes, lines from 1), and the new text."""

    def insert(self, line: int, text: str) -> None:
        """Put lines before a line."""
        self.replaced.append((line, 0, line, 0, text))


def patch_script(table: Path, script: Path, copy: Path) -> SourcePatch:
    """The edit of a script; nothing is written.

    Args:
        table: of changes.
        script: its file.
        copy: where the edited one will lie: `applied` finds its functions by that name.

    Raises:
        StudyError: the table cannot be used, or holds nothing for the script.
        UsageError: the script cannot be read.
    """
    found = read_table(table)
    text = _text(script)
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{script} is no Python: {error}.", "Name a Python script.") from None
    steps, left_out = _for_script(found, script)
    if not steps and not found.entries:
        why = f": {'; '.join(left_out)}" if left_out else ""
        raise StudyError(
            f"Nothing in {table} is for {script}{why}.", "Name the table of its study."
        )
    edits = _Edits()
    plain = [kind for kind in _PLAIN if _plain_edits(kind, steps, script, tree, edits)]
    written = [one.action for one in steps if one.action.kind in plain]
    rest = [one.action for one in steps if one.action.kind not in plain]
    kinds = [one for one in StepActionKind if any(a.kind is one for a in rest)]
    if found.entries and StepActionKind.PRODUCT not in kinds:
        kinds.insert(0, StepActionKind.PRODUCT)
    if kinds:
        _applied(tree, edits, kinds, table, {script.name: copy.name})
    new = _edited(text, edits)
    ast.parse(new)
    products = [f"product {one.pattern.text}" for one in found.entries]
    return SourcePatch(
        new,
        _diff(text, new, script, copy),
        tuple(one.text for one in written),
        (*(one.text for one in rest), *products),
        tuple(left_out),
    )


def _for_script(table: DispatchTable, script: Path) -> tuple[list[StepEntry], list[str]]:
    chosen, left_out = [], []
    for one in table.steps:
        changed = changed_file(one.files, script.resolve().parent)
        changed = changed or changed_package(one.packages)
        if changed is None:
            chosen.append(one)
        else:
            left_out.append(f"{one.reference} ({one.action.text}): {changed}")
    return chosen, left_out


def _plain_edits(
    kind: StepActionKind,
    steps: Sequence[StepEntry],
    script: Path,
    tree: ast.Module,
    edits: _Edits,
) -> bool:
    """Whether all changes of a kind have a plain spelling; they are added then."""
    actions = [one.action for one in steps if one.action.kind is kind]
    mine = _Edits()
    if kind is not StepActionKind.TRITON_CONFIG and "torch" not in _names_imported(tree):
        return False
    for action in actions:
        if kind is StepActionKind.COMPILE_REGION:
            done = _decorated(action, script, tree, mine)
        elif kind is StepActionKind.MATMUL_PRECISION:
            value = str(action.settings.get("precision", "high"))
            mine.insert(_after_imports(tree), f'torch.set_float32_matmul_precision("{value}")\n')
            done = True
        else:
            done = _launched(action, tree, mine)
        if not done:
            return False
    edits.replaced += mine.replaced
    return bool(actions)


def _decorated(action: StepAction, script: Path, tree: ast.Module, edits: _Edits) -> bool:
    named = named_by(action.target)
    if named is None or not same_file(str(script.resolve()), named.file):
        return False
    functions = functions_named(tree, named.name)
    if len(functions) != 1:
        return False
    settings = {k: v for k, v in action.settings.items() if (k, v) != ("mode", "default")}
    given = ", ".join(f"{name}={value!r}" for name, value in sorted(settings.items()))
    line = f"@torch.compile({given})" if given else "@torch.compile"
    _insert_decorator(functions[0], line, edits)
    return True


def _insert_decorator(function: Function, line: str, edits: _Edits) -> None:
    names = {getattr(one, "id", getattr(one, "attr", "")) for one in function.decorator_list}
    inner = bool(names & _BOUND)
    first = function.decorator_list[0].lineno if function.decorator_list else function.lineno
    edits.insert(function.lineno if inner else first, " " * function.col_offset + line + "\n")


def _launched(action: StepAction, tree: ast.Module, edits: _Edits) -> bool:
    """New numbers at every launch of a kernel in the file."""
    kernel = (action.target.kernel or "").rpartition(".")[2]
    launches = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Subscript)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == kernel
    ]
    definition = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == kernel]
    tuned = any("autotune" in ast.dump(d) for n in definition for d in n.decorator_list)
    if action.target.shapes or tuned or len(definition) != 1:
        return False
    return bool(launches) and all(_numbers(one, action, edits) for one in launches)


def _numbers(launch: ast.Call, action: StepAction, edits: _Edits) -> bool:
    given = {one.arg: one.value for one in launch.keywords}
    for name, value in sorted(action.config.items()):
        old = given.get(name)
        if isinstance(old, ast.Constant):
            if old.value != value:
                end = (old.end_lineno or old.lineno, old.end_col_offset or old.col_offset)
                edits.replaced.append((old.lineno, old.col_offset, *end, repr(value)))
        elif old is None and name in LAUNCH_OPTIONS and (launch.args or launch.keywords):
            last = max(
                [*launch.args, *(one.value for one in launch.keywords)],
                key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0),
            )
            at = (last.end_lineno or 0, last.end_col_offset or 0)
            edits.replaced.append((*at, *at, f", {name}={value!r}"))
        else:
            return False
    return _fixed_grid_is_free(launch, action)


def _fixed_grid_is_free(launch: ast.Call, action: StepAction) -> bool:
    """Whether the grid follows, being a function, or cannot depend on what is changed."""
    assert isinstance(launch.func, ast.Subscript)
    meta = action.config.keys() - set(LAUNCH_OPTIONS)
    return not meta or isinstance(launch.func.slice, ast.Lambda)


def _applied(
    tree: ast.Module,
    edits: _Edits,
    kinds: Sequence[StepActionKind],
    table: Path,
    renamed: Mapping[str, str],
) -> None:
    """`kernel_compass.applied(...).start()` before the program does anything."""
    if "kernel_compass" not in _names_imported(tree):
        edits.insert(_after_imports(tree), "import kernel_compass\n")
    names = ", ".join(f'"{one.value}"' for one in kinds)
    moved = ", ".join(f"{old!r}: {new!r}" for old, new in renamed.items() if old != new)
    more = f", renamed={{{moved}}}" if moved else ""
    call = f"kernel_compass.applied({str(table)!r}, kinds=[{names}]{more}).start()\n"
    line, column = _start(tree)
    edits.insert(line, " " * column + call)


def _start(tree: ast.Module) -> tuple[int, int]:
    """Line and column of the first statement of the program that does something."""
    after = _after_imports(tree)
    for node in tree.body:
        if node.lineno < after:
            continue
        if isinstance(node, ast.If) and "__main__" in ast.dump(node.test):
            return node.body[0].lineno, node.body[0].col_offset
        defines = isinstance(node, Function | ast.ClassDef | ast.Assign | ast.AnnAssign)
        if not defines and not isinstance(node, ast.Import | ast.ImportFrom):
            return node.lineno, node.col_offset
    return after, 0


def _after_imports(tree: ast.Module) -> int:
    """The line behind the imports that the file begins with, or behind its docstring."""
    line = 1
    for node in tree.body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not isinstance(node, ast.Import | ast.ImportFrom) and not docstring:
            break
        line = (node.end_lineno or node.lineno) + 1
    return line


def _names_imported(tree: ast.Module) -> set[str]:
    found = [alias for node in tree.body if isinstance(node, ast.Import) for alias in node.names]
    return {alias.asname or alias.name.partition(".")[0] for alias in found}


def _edited(text: str, edits: _Edits) -> str:
    lines = text.splitlines(keepends=True)
    newline = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    if lines and not lines[-1].endswith(("\n", "\r")):
        lines[-1] += newline if any(one[0] > len(lines) for one in edits.replaced) else ""
    in_order = sorted(enumerate(edits.replaced), key=lambda one: (one[1][:2], one[0]))
    for _, (first, start, last, end, new) in reversed(in_order):
        if first > len(lines):
            lines.append(new.replace("\n", newline))
            continue
        head = lines[first - 1].encode()[:start].decode()
        tail = lines[last - 1].encode()[end:].decode()
        lines[first - 1 : last] = [head + new.replace("\n", newline) + tail]
    return "".join(lines)


def _text(script: Path) -> str:
    try:
        data = script.read_bytes()
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(encoding)
    except OSError as error:
        raise unreadable(script, error, "name a Python script") from None
    except (SyntaxError, UnicodeDecodeError) as error:
        raise UsageError(f"{script} is no text: {error}.", "Name a Python script.") from None


def _diff(old: str, new: str, script: Path, copy: Path) -> str:
    rows: Iterable[str] = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), str(script), str(copy)
    )
    return "".join(
        row if row.endswith("\n") else f"{row}\n\\ No newline at end of file\n" for row in rows
    )
