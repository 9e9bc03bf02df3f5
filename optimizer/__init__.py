"""The first spellings of the loop's commands, working from a checkout.

`kernel_compass` is the package; these modules pass their words on to it. The path is extended
because another project on an index has the name.
"""

import importlib.util
import sys
from pathlib import Path
from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)

if importlib.util.find_spec("kernel_compass") is None:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))
