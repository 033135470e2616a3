"""Every operator of core ATen: computed as eager computes it, on the server or, without a graph there, by torch, and
docs/pytorch.md says which; skipped (77) without torch.

TELEGRADD names the daemon's program, as in tests/python.
"""

import pathlib
import re

from torch_support import TorchTest
import support
import torch

import core_samples
import telegrad.torch
from telegrad.torch._backend import decompositions
from torch.utils._pytree import tree_leaves, tree_map

GUIDE = pathlib.Path(__file__).resolve().parents[2] / "docs/pytorch.md"
SIZES = ("sym_size", "sym_stride", "sym_numel", "sym_storage_offset", "sym_is_contiguous")  # computed by torch, of no tensor's values


def core():
    """By name: the overloads that core ATen has, of those that torch has loaded and all others; those that fill a given tensor
    are the others with another result."""
    found = {}
    for full in torch._C._dispatch_get_all_op_names():
        space, _, name = full.partition("::")
        packet, _, overload = name.partition(".")
        if space == "aten" and overload != "out":
            op = getattr(getattr(torch.ops.aten, packet), overload or "default", None)
            if op is not None and torch.Tag.core in op.tags:
                found[f"{packet}.{overload or 'default'}"] = op
    return found


class CoreTest(TorchTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ops = core()

    def results(self, function, call):
        """The tensors that a function gives for copies of a call's arguments, and the arguments afterwards."""
        copies = tree_map(lambda a: a.clone() if isinstance(a, torch.Tensor) else a, call.args)
        torch.manual_seed(3)
        with torch.no_grad():
            out = function(*copies)
        out = [out] if isinstance(out, torch.Tensor) else list(out)
        return [out[i] for i in call.values] if call.values else out, [a for a in tree_leaves(copies) if isinstance(a, torch.Tensor)]

    def test_every_operator_is_computed_or_refused(self):
        calls = core_samples.calls()
        for name, op in self.ops.items():
            if name.split(".")[0] in SIZES or name.split(".")[0] in telegrad.torch.refused():
                continue
            self.assertTrue(calls.get(name), f"aten.{name} is called by no test")
            for number, call in enumerate(calls[name]):
                with self.subTest(name, number=number):
                    torch._dynamo.reset()
                    function = lambda *args: op(*args, **call.named)  # noqa: E731, B023
                    got = self.results(torch.compile(function, backend="telegrad", fullgraph=True, dynamic=False), call)
                    want = self.results(function, call)
                    if call.values == []:  # none is defined
                        got, want = ([[t.shape for t in side[0]], side[1]] for side in (got, want))
                        self.assertEqual(got[0], want[0])
                    else:
                        torch.testing.assert_close(got[0], want[0], rtol=2e-5, atol=2e-5, equal_nan=True)
                    torch.testing.assert_close(got[1], want[1], rtol=2e-5, atol=2e-5, equal_nan=True)

    def test_the_guide_lists_them_all(self):
        """Under what computes it: a graph of its own, a decomposition, torch itself, or nothing."""
        text = GUIDE.read_text(encoding="utf-8")

        def listed(name):
            (table,) = re.findall(rf"<!-- {name} -->\n(.*?)<!-- end", text, re.DOTALL)
            return set(re.findall(r"`([^`]+)`", table))

        graphs, refused = set(telegrad.torch.operators()), set(telegrad.torch.refused())
        decomposed = set()
        for name, op in self.ops.items():
            packet = name.split(".")[0]
            if packet in refused or packet in SIZES:
                continue
            if op in decompositions() or packet not in graphs:
                decomposed.add(packet)
        self.assertEqual(listed("decomposed"), decomposed - graphs)
        self.assertEqual(listed("operators"), graphs)
        self.assertEqual(listed("refused"), refused)
        packets = {name.split(".")[0] for name in self.ops}
        self.assertEqual(packets - listed("decomposed") - listed("operators") - listed("refused"), set(SIZES))

    def test_what_has_no_graph_is_run_by_torch(self):
        """Or torch keeps it out of the compiled part by itself; the result is eager's."""
        aten, x = torch.ops.aten, torch.randn(4, 6)
        spectrum = torch.fft.rfft(x)
        calls = {"_fft_r2c": [aten._fft_r2c.default, x, [1], 0, True], "_fft_c2r": [aten._fft_c2r.default, spectrum, [1], 2, 6],
                 "_fft_c2c": [aten._fft_c2c.default, spectrum, [1], 0, True], "_local_scalar_dense": [aten._local_scalar_dense.default, x[0, 0]],
                 "item": [torch.Tensor.item, x[0, 0]], "nonzero": [aten.nonzero.default, x], "masked_select": [torch.masked_select, x, x > 0],
                 "complex": [torch.complex, x, x], "view_as_complex": [torch.view_as_complex, x.reshape(4, 3, 2)],
                 "view_as_real": [torch.view_as_real, spectrum], "resize": [lambda x: (x * 2).resize_(2, 3), x],
                 "resize_": [lambda x: (x * 2).resize_([3, 4]), x]}
        self.assertEqual(set(calls), set(telegrad.torch.refused()))
        for name, (function, *args) in calls.items():
            with self.subTest(name):
                torch._dynamo.reset()
                got = torch.compile(lambda *args: function(*args), backend="telegrad")(*args)  # noqa: B023
                self.assertTrue(torch.equal(torch.as_tensor(got), torch.as_tensor(function(*args))))


if __name__ == "__main__":
    support.main()
