"""Where calibrations are kept: the user's cache folder, one file a device and driver; shipped ones.

    $KERNEL_COMPASS_CACHE, else $XDG_CACHE_HOME/kernel-compass, else ~/.cache/kernel-compass
        calibrations/<device>-<driver>.json

A file is written whole under another name and renamed, so that readers and other writers see the
old one or the new one. What a file says of its device decides, not its name.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

from kernel_compass.access import access_remedy
from kernel_compass.codec.calibration_json import decode, encode
from kernel_compass.codec.json_reading import file_bytes
from kernel_compass.errors import CalibrationError, shortened
from kernel_compass.records.calibration import Calibration

CACHE_VARIABLE = "KERNEL_COMPASS_CACHE"
_SHIPPED = files("kernel_compass") / "calibrations"
_MEASURE = "Measure one with `kernel-compass calibrate`"
_LONGEST_SLUG = 80
_HASH_DIGITS = 8


def store_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of this user's calibrations; it need not exist.

    Raises:
        CalibrationError: the user has no home folder, and none is named; or it is in the home
            folder of a user that does not exist.
    """
    if named := environ.get(CACHE_VARIABLE):
        return _expanded(Path(named), CACHE_VARIABLE) / "calibrations"
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
    return store_folder() / f"{_distinct_slug(device)}-{_distinct_slug(driver)}.json"


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
    found = read(path) if os.path.lexists(path) else _before_hashes(device, driver)
    if found is None:
        return None
    same = (found.environment.device.name, found.environment.driver) == (device, driver)
    return found if same else None


def _before_hashes(device: str | None, driver: str | None) -> Calibration | None:
    """What older versions stored under the plain name, which may be another device's."""
    try:
        return read(store_folder() / f"{_slug(device)}-{_slug(driver)}.json")
    except CalibrationError:
        return None


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
    if is_path or _exists(name):
        return read(_expanded(Path(name_or_path), "The calibration"))
    known = {path.stem: path for path in stored()}
    if name in known:
        return read(known[name])
    has = f"shipped: {', '.join(list_shipped())}"
    has += f"; measured here: {', '.join(known)}" if known else "; none is measured here"
    raise CalibrationError(
        f"There is no calibration {shortened(name)!r} ({has}).",
        f"{_MEASURE}, or name one of these or a file.",
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
        data = file_bytes(path)
    except (OSError, ValueError) as error:  # ValueError: a null character in the name as well
        reason = error.strerror or error if isinstance(error, OSError) else error
        found = f"{shortened(str(path))} cannot be read: {reason}."
        raise CalibrationError(found, access_remedy(path, error, "name another file")) from None
    return decode(data, shortened(str(path)))


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


def _distinct_slug(text: str | None) -> str:
    """The slug, and a hash where other names have the same one; case alone makes no other name."""
    slug = _slug(text)
    words = (text or "").replace(" ", "-").lower()
    if text is None or (slug == words and "-" not in (text or "") and slug != "unknown"):
        return slug
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{slug}-{digest[:_HASH_DIGITS]}"


def _exists(name: str) -> bool:
    """Whether a word without a separator names something other than a folder in this one."""
    try:
        return os.path.lexists(name) and not os.path.isdir(name)  # noqa: PTH112
    except ValueError:
        return False


def _expanded(path: Path, what: str) -> Path:
    """A path with `~` and `~user` replaced.

    Raises:
        CalibrationError: nobody knows that user's home folder.
    """
    try:
        return path.expanduser()
    except RuntimeError:
        found = f"{what}: {shortened(str(path))!r} is in the home folder of nobody known here."
        raise CalibrationError(found, "Write the whole path.") from None


def _unwritable(path: Path, error: OSError) -> CalibrationError:
    return CalibrationError(
        f"{path} cannot be written: {error.strerror or error}.",
        f"Give --output FILE, or set {CACHE_VARIABLE} to a folder that can be written.",
    )
