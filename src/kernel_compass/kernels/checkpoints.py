"""Quantized weights out of safetensors files, as they are: nothing is quantized again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from kernel_compass.errors import MissingDependency, UsageError, shortened
from kernel_compass.kernels.checkpoint_layouts import LoadedWeight, read_layer
from kernel_compass.kernels.checkpoint_schemes import scheme_of
from kernel_compass.kernels.checkpoint_tensors import refuse_damaged
from kernel_compass.kernels.library import torch_library
from kernel_compass.kernels.quantize import linear_weight
from kernel_compass.kernels.quantized import QuantizedWeight
from kernel_compass.records.number_format import Code, NumberFormat

_WEIGHTS = ("weight", "weight_packed", "qweight")
_BESIDE = ("weight_scale", "weight_scale_inv", "weight_shape", "weight_zero_point", "weight_g_idx")
_SUFFIXES = (*_WEIGHTS, *_BESIDE, "qzeros", "scales", "g_idx")


@dataclass(frozen=True)
class Checkpoint:
    """A model's files, opened but not read."""

    config: Mapping[str, Any]
    """`config.json`; empty where there is none."""
    places: Mapping[str, Path]
    """The file of every tensor."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of all that has a weight, sorted; norms and embeddings among them."""
        found = (name.rpartition(".") for name in self.places)
        return tuple(sorted({layer for layer, _, last in found if last in _WEIGHTS}))

    def load(
        self, layer: str, *, weight_only: bool = False, permuted: bool = False, device: str = "cpu"
    ) -> LoadedWeight:
        """A linear layer's weight `(1, K, N)`; `checkpoint_heads` cuts MLA's `kv_b_proj`.

        Args:
            layer: one of `layers`.
            weight_only: 16-bit activations even where the checkpoint quantizes them; blocks of fp8
                have no such format here.
            permuted: rows may be moved where groups are scattered (`desc_act`); the product is
                then `a[:, order] @ W`, with the `order` of what is returned.
            device: where its tensors go.

        Raises:
            UsageError: no such layer; a layout that is not read; tensors that do not fit.
            MissingDependency: safetensors or torch is not installed.
        """
        wanted = {f"{layer}.{suffix}": suffix for suffix in _SUFFIXES}
        names = {name: suffix for name, suffix in wanted.items() if name in self.places}
        if not any(suffix in _WEIGHTS for suffix in names.values()):
            raise UsageError(
                f"The checkpoint has no weight of {layer!r}.{_similar(layer, self.layers)}",
                "The names are in Checkpoint.layers.",
            )
        kept = [suffix for suffix in _WEIGHTS if suffix in names.values()]
        if len(kept) > 1:
            raise UsageError(
                f"{layer} is stored in several forms: {' and '.join(kept)}.",
                "Keep the one that config.json speaks of.",
            )
        tensors = {names[n]: tensor for n, tensor in _read(self.places, names, device).items()}
        if set(tensors) == {"weight"}:
            return LoadedWeight(_plain(tensors["weight"], layer))
        scheme = scheme_of(_without_activations(self.config) if weight_only else self.config, layer)
        if weight_only:
            scheme = replace(scheme, activation=None)
        return read_layer(tensors, scheme, layer, permuted)


def open_checkpoint(path: Path | str) -> Checkpoint:
    """A local directory with `config.json` and safetensors files; nothing is downloaded.

    Args:
        path: the directory; `~` is the home directory.

    Raises:
        UsageError: no such directory, no safetensors in it, or files that cannot be read.
        MissingDependency: safetensors or torch is not installed.
    """
    folder = _folder(path)
    config = folder / "config.json"
    index = folder / "model.safetensors.index.json"
    found = _json(config) if _is_file(config) else {}
    if _is_file(index):
        return Checkpoint(found, _indexed(folder, _json(index), index))
    files = _files(folder)
    if not files:
        raise UsageError(
            f"{folder} has no safetensors files.",
            "Pass the directory of a checkpoint: config.json and model*.safetensors.",
        )
    return Checkpoint(found, _collected(files))


def _folder(path: Path | str) -> Path:
    """The directory.

    Raises:
        UsageError: it is not there, or is something else.
    """
    pass_one = "Pass the directory of a checkpoint: config.json and model*.safetensors."
    try:
        folder = Path(path).expanduser()
        there, is_folder = folder.exists(), folder.is_dir()
    except (OSError, RuntimeError, ValueError) as error:  # such a name cannot be; no such home
        why = error.strerror if isinstance(error, OSError) else shortened(str(error))
        raise UsageError(f"{shortened(str(path))} is no directory ({why}).", pass_one) from None
    if not there:
        raise UsageError(
            f"There is no {folder} here.",
            f"{pass_one} It is a local one: a name on a model hub has to be downloaded first.",
        )
    if not is_folder:
        raise UsageError(f"{folder} is a file.", f"{pass_one} Here: {folder.parent}.")
    return folder


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.glob("*.safetensors"))
    except OSError:  # a name that no directory can have, or one that is not ours to read
        return []


def _collected(files: Sequence[Path]) -> dict[str, Path]:
    places: dict[str, Path] = {}
    for file in files:
        for name in _names(file):
            if name in places:
                raise UsageError(
                    f"{name} is both in {places[name]} and in {file}, and no index says which.",
                    "Leave the files of one checkpoint in the directory, or add its index.",
                )
            places[name] = file
    return places


def _indexed(folder: Path, index: Mapping[str, Any], source: Path) -> dict[str, Path]:
    placed = index.get("weight_map")
    if not isinstance(placed, Mapping):
        raise UsageError(f"{source} has no weight_map.", "Download the checkpoint's index again.")
    for file in sorted({str(name) for name in placed.values()}):
        # an index comes from elsewhere: it names files beside it and nothing else
        if Path(file).name != file or not _is_file(folder / file):
            raise UsageError(
                f"{source} names {file!r}, which is no file beside it.",
                "Download the checkpoint's files again, all of them.",
            )
    return {str(name): folder / str(file) for name, file in placed.items()}


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that no file can have
        return False


def _read(places: Mapping[str, Path], names: Mapping[str, str], device: str) -> dict[str, Any]:
    tensors: dict[str, Any] = {}
    for file in sorted({places[name] for name in names}):
        with _opened(file, device) as opened:
            present = set(opened.keys())
            for name in (n for n in names if places[n] == file):
                if name not in present:
                    raise UsageError(
                        f"{file} lacks {name}, which the index says it holds.",
                        "Download the checkpoint's files again, all of one version.",
                    )
                tensors[name] = _tensor(opened, name, file)
    return tensors


def _tensor(opened: Any, name: str, file: Path) -> Any:
    try:
        return opened.get_tensor(name)
    except (RuntimeError, import_module("safetensors").SafetensorError) as error:
        raise UsageError(
            f"{file}: {name} cannot be read ({shortened(str(error))}).",
            "Name a device that is there; types are those that this PyTorch knows.",
        ) from error


def _names(file: Path) -> list[str]:
    with _opened(file, "cpu") as opened:
        return list(opened.keys())


def _opened(file: Path, device: str) -> Any:
    try:
        torch_library()
    except MissingDependency as error:
        raise MissingDependency(
            "Reading checkpoints needs PyTorch, which is not installed.",
            "Install it: pip install torch safetensors (a CPU build will do).",
        ) from error
    try:
        library = import_module("safetensors")
    except ModuleNotFoundError as error:
        raise MissingDependency(
            "Reading checkpoints needs safetensors, which is not installed.",
            "Install it: pip install safetensors (the extra `checkpoints`).",
        ) from error
    try:
        return library.safe_open(str(file), framework="pt", device=device)
    except (OSError, library.SafetensorError) as error:
        raise UsageError(
            f"{file} cannot be read as safetensors ({error}).",
            "Download it again; large-file pointers of Git are no tensors.",
        ) from error


def _plain(weight: Any, layer: str) -> QuantizedWeight:
    torch = torch_library()
    kinds = {torch.bfloat16: Code.BF16, torch.float16: Code.FP16}
    if weight.dtype not in kinds or weight.ndim != 2:
        raise UsageError(
            f"{layer}.weight is {weight.dtype} {tuple(weight.shape)} with no scales beside it.",
            "A linear layer's weight is (N, K), of 16 bits or with its scales.",
        )
    refuse_damaged(f"{layer}.weight", weight)
    code = kinds[weight.dtype]
    return QuantizedWeight(NumberFormat(code, code), linear_weight(weight), None)


def _without_activations(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The configuration of the weights alone, so that unusual activations are no obstacle."""
    found = config.get("quantization_config")
    groups = found.get("config_groups") if isinstance(found, Mapping) else None
    if not isinstance(groups, Mapping) or not isinstance(found, Mapping):
        return config
    bare = {
        name: {**group, "input_activations": None} if isinstance(group, Mapping) else group
        for name, group in groups.items()
    }
    return {**config, "quantization_config": {**found, "config_groups": bare}}


def _similar(layer: str, layers: tuple[str, ...]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(layer, layers, 1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{file} cannot be read ({error}).", "Download it again.") from error
    if not isinstance(found, dict):
        raise UsageError(f"{file} is no JSON object.", "Download it again.")
    return found
