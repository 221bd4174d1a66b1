"""drlib: data reconstruction attacks, their metrics and their benchmark, as an executable book.

Importing the package loads nothing heavy: its modules are imported on first use (`import drlib;
drlib.metrics.sample_distance(...)`), so that the `drlib` command answers at once.
"""

import importlib

__version__ = "0.1.0"

# The modules a reader meets; each is imported when it is first named.
_MODULES = (
    "attacks",
    "data",
    "errors",
    "metrics",
    "models",
    "profiles",
    "published",
    "report",
    "sections",
    "store",
    "study",
    "testing",
    "training",
    "types",
)

__all__ = ["__version__", *_MODULES]


def __getattr__(name):
    if name in _MODULES:
        return importlib.import_module("." + name, __name__)
    raise AttributeError("module 'drlib' has no attribute " + repr(name))


def __dir__():
    return sorted([*globals(), *_MODULES])
