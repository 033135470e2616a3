"""PyTorch on Telegrad: `torch.compile(model, backend="telegrad")`.

The package's entry point tells torch of the backend; where the package is only on PYTHONPATH,
`import telegrad.torch` does. docs/pytorch.md is the guide. _backend.py says what is sent when,
_lower.py how an FX graph becomes one of Telegrad's, _table.py what an operator is, _elementwise.py and its
neighbours have the operators.
"""

from telegrad.torch._backend import backend
from telegrad.torch._export import export
from telegrad.torch._kept import fetch
from telegrad.torch._lower import operators, refused
from telegrad.torch._table import Unsupported
from telegrad.torch._training import training_step

__all__ = ["Unsupported", "backend", "export", "fetch", "operators", "refused", "training_step"]
