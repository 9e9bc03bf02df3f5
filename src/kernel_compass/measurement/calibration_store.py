"""Where calibrations are kept: the user's cache folder, one file a device and driver; shipped ones.

    $KERNEL_COMPASS_CACHE, else $XDG_CACHE_HOME/kernel-compass, else ~/.cache/kernel-compass
        calibrations/<device>-<driver>.json

A file is written whole under another name and renamed, so that readers and other writers see the
old one or the new one. What a file says of its device decides, not its name.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from kernel_compass.codec.calibration_json import decode, encode
from kernel_compass.errors import CalibrationError
from kernel_compass.records.calibration import Calibration

CACHE_VARIABLE = "KERNEL_COMPASS_CACHE"
_SHIPPED = files("kernel_compass") / "calibrations"
_MEASURE = "Measure one with `kernel-compass calibrate`"
_LONGEST_SLUG = 80


def store_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of this user's calibrations; it need not exist.

    Raises:
        CalibrationError: the user has no home folder, and none is named.
    """
    if named := environ.get(CACHE_VARIABLE):
        return Path(named).expanduser() / "calibrations"
    xdg = Path(environ.get("XDG_CACHE_HOME") or "")
    if xdg.is_absolute():  # the XDG specification: a relative one is ignored
        return xdg / "kernel-compass" / "calibrations"
    try:
        home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    except RuntimeError:
        found = "This user has no home folder to keep calibrations in."
        raise CalibrationError(found, f"Set {CACHE_VARIABLE}, or give --output FILE.") from None
    return home / ".cache" / "kernel-compass" / "calibrations"


def path_of(device: str | None, driver: str | None) -> Path:
    """The file of a device under a driver, whether it exists or not.

    Args:
        device: the driver's name of it; a MIG slice's name holds its profile.
        driver: its version.
    """
    return store_folder() / f"{_slug(device)}-{_slug(driver)}.json"


def save(calibration: Calibration, path: Path | None = None) -> Path:
    """Write a calibration, replacing an older one whole.

    Args:
        calibration: of this machine.
        path: the file; default: its place in the store.

    Returns:
        The file.

    Raises:
        CalibrationError: it cannot be written.
    """
    device, driver = calibration.environment.device.name, calibration.environment.driver
    target = path if path is not None else path_of(device, driver)
    data = encode(calibration)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(target, data)
    except OSError as error:
        raise _unwritable(target, error) from None
    return target


def check_writable() -> None:
    """Fail now, not after minutes of measuring, where nothing could be stored.

    Raises:
        CalibrationError: the store cannot be written.
    """
    folder = store_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".writable.", dir=folder)
        os.close(handle)
        Path(name).unlink()
    except OSError as error:
        raise _unwritable(folder, error) from None


def find(device: str | None, driver: str | None) -> Calibration | None:
    """The stored calibration of a device under a driver; `None` where there is none.

    Raises:
        CalibrationError: there is one, and it cannot be used.
    """
    path = path_of(device, driver)
    if not path.exists():
        return None
    found = read(path)
    same = (found.environment.device.name, found.environment.driver) == (device, driver)
    return found if same else None


def find_other_driver(device: str | None) -> Calibration | None:
    """The newest stored calibration of a device under any driver; unusable files are skipped."""
    fitting = []
    for path in stored():
        try:
            calibration = read(path)
        except CalibrationError:
            continue
        if device is not None and calibration.environment.device.name == device:
            fitting.append(calibration)
    return max(fitting, key=lambda c: c.environment.date or "", default=None)


def stored() -> tuple[Path, ...]:
    """The files of the store, by name."""
    try:
        return tuple(sorted(store_folder().glob("[!.]*.json")))
    except (CalibrationError, OSError):
        return ()


def list_shipped() -> tuple[str, ...]:
    """The names of the calibrations that come with the package."""
    return tuple(
        sorted(e.name.removesuffix(".json") for e in _SHIPPED.iterdir() if e.name.endswith(".json"))
    )


def load(name_or_path: str | Path) -> Calibration:
    """A shipped calibration by its name, a stored one by its file's name, or a file.

    Args:
        name_or_path: `h100` (in whatever case), `nvidia-h200-580.65.06`, or a path.

    Raises:
        CalibrationError: there is none of that name, or its file cannot be used.
    """
    name = str(name_or_path).strip()
    if name.lower() in list_shipped():
        return decode((_SHIPPED / f"{name.lower()}.json").read_bytes(), f"The shipped {name}")
    is_path = isinstance(name_or_path, Path) or os.sep in name or name.endswith(".json")
    if is_path or Path(name).is_file():
        return read(Path(name_or_path).expanduser())
    known = {path.stem: path for path in stored()}
    if name in known:
        return read(known[name])
    has = f"shipped: {', '.join(list_shipped())}"
    has += f"; measured here: {', '.join(known)}" if known else "; none is measured here"
    raise CalibrationError(
        f"There is no calibration {name!r} ({has}).", f"{_MEASURE}, or name one of these or a file."
    )


def shipped_for(device: str | None) -> Calibration | None:
    """The shipped calibration of exactly this device, by the driver's name of it."""
    for name in list_shipped():
        calibration = load(name)
        if device is not None and calibration.environment.device.name == device:
            return calibration
    return None


def read(path: Path) -> Calibration:
    """The calibration in a file.

    Raises:
        CalibrationError: it cannot be read, or is none.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        found = f"{path} cannot be read: {error.strerror or error}."
        raise CalibrationError(found, "Check the path and its permissions.") from None
    return decode(data, str(path))


def _replace(target: Path, data: bytes) -> None:
    """Write beside the target, then rename over it."""
    target = target.resolve()  # a link stays one
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _slug(text: str | None) -> str:
    """A name that every file system takes: `nvidia-h100-80gb-hbm3-mig-1g.10gb`."""
    words = re.sub(r"[^a-z0-9.]+", "-", (text or "").lower())
    return words[:_LONGEST_SLUG].strip("-.") or "unknown"


def _unwritable(path: Path, error: OSError) -> CalibrationError:
    return CalibrationError(
        f"{path} cannot be written: {error.strerror or error}.",
        f"Give --output FILE, or set {CACHE_VARIABLE} to a folder that can be written.",
    )
