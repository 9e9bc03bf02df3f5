"""The first spellings of the profiling commands, working from a checkout.

`kernel_compass` is the package; these modules re-export it under the names that the project's
first scripts used. The path is extended because newer Pythons have a `profiling` of their own.
"""

import importlib.util
import sys
from pathlib import Path
from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)

if importlib.util.find_spec("kernel_compass") is None:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
