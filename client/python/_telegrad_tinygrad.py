"""Makes the device TELEGRAD known to whatever tinygrad is imported.

tinygrad has no registry of devices: it imports `tinygrad.runtime.ops_<name>`. So a finder supplies that
module, and once `tinygrad.schedule` has been imported, before anything takes names from it, lets graphs
of the device pass by tinygrad's scheduler. Until tinygrad is imported this costs nothing, and until the
device is used, telegrad itself is not imported.

tinygrad puts some values on its device CPU whatever the default is (those that it writes to files, for
example), and that device wants a C compiler. Where there is none and TELEGRAD is the default, CPU is
memory only, and its graphs run on TELEGRAD as well.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import sys

MODULE = "tinygrad.runtime.ops_telegrad"
SCHEDULE = "tinygrad.schedule"
CPU = "tinygrad.runtime.ops_cpu"


class _Device(importlib.abc.Loader):
    def create_module(self, spec):
        return None

    def exec_module(self, module):
        from telegrad.tinygrad import _device

        module.TelegradDevice = _device.TelegradDevice


class _Then(importlib.abc.Loader):
    """Loads a module as its own loader does, then calls `then` with it."""

    def __init__(self, loader, then):
        self._loader, self._then = loader, then

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._then(module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self):
        self._inside = False

    def find_spec(self, name, path=None, target=None):
        if name == MODULE:
            return importlib.machinery.ModuleSpec(name, _Device())
        then = {SCHEDULE: _attach, CPU: _soften}.get(name)
        if then is None or self._inside:
            return None
        self._inside = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._inside = False
        if spec is not None and spec.loader is not None:
            spec.loader = _Then(spec.loader, then)
        return spec


def _attach(schedule):
    """The scheduler sees a graph whole for the last time; those of the device are taken here."""
    own = getattr(schedule, "create_linear_with_vars", None)
    if own is None:
        return  # another tinygrad than this package knows; the device says so when it is opened

    def create_linear_with_vars(big_sink):
        if any(_is_ours(u) for u in big_sink.src[1:]) or _lacks_compiler(big_sink):
            from telegrad.tinygrad import _execute

            return _execute.create_linear_with_vars(big_sink)
        return own(big_sink)

    create_linear_with_vars.telegrad = True
    schedule.create_linear_with_vars = create_linear_with_vars


def _is_ours(u):
    device = u.device
    if isinstance(device, tuple):
        device = device[0]
    return device is not None and device.startswith("TELEGRAD")


def _soften(ops_cpu):
    from tinygrad.device import Compiled, Device
    from tinygrad.runtime.ops_python import PythonAllocator

    own = ops_cpu.CPUDevice.__init__

    class CPUMemory(Compiled):
        memory_only = True

    def __init__(self, device):
        try:
            own(self, device)
        except (OSError, RuntimeError):
            if Device.DEFAULT != "TELEGRAD":
                raise
            self.__dict__.clear()
            self.__class__ = CPUMemory
            Compiled.__init__(self, device, PythonAllocator(self), [], None)

    ops_cpu.CPUDevice.__init__ = __init__


def _lacks_compiler(big_sink):
    """The graph is of the device CPU and computes, and CPU is memory only."""
    from tinygrad.device import Device
    from tinygrad.uop.ops import GroupOp, Ops

    if Device.DEFAULT != "TELEGRAD" or not any(u.device == "CPU" for u in big_sink.src[1:]):
        return False
    if not getattr(Device["CPU"], "memory_only", False):
        return False
    nodes = big_sink.src[0].toposort()
    return any(u.op in GroupOp.ALU or u.op in (Ops.REDUCE, Ops.CAST) or
               (u.op is Ops.STORE and u.src[1].base.op is Ops.CONST) for u in nodes)


def register():
    """Once; where tinygrad is there already, also in it."""
    if any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    sys.meta_path.insert(0, _Finder())
    schedule = sys.modules.get(SCHEDULE)
    if schedule is not None:
        own = schedule.create_linear_with_vars
        _attach(schedule)
        for name, module in list(sys.modules.items()):
            if name.startswith("tinygrad") and getattr(module, "create_linear_with_vars", None) is own:
                module.create_linear_with_vars = schedule.create_linear_with_vars
