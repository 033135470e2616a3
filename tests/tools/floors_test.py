#!/usr/bin/env python3
"""The floor check catches what it is there to catch: each case is a small house with one include."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import floors

HEADERS = [
    "engine/base/status.h", "engine/ir/graph.h", "engine/rewrite/rewriter.h", "engine/wire/wire.h",
    "engine/rules/algebra.h", "engine/frontend/tensor/tensor.h", "engine/frontend/ops/reduce.h",
    "engine/frontend/nn/nn.h", "engine/frontend/io/zip.h", "engine/schedule/schedule.h",
    "engine/execution/executable.h", "devices/api/device.h", "devices/cpu/cpu.h",
    "devices/drivers.h", "server/session/session.h", "server/service/compute.h",
    "server/session/turn.h", "server/operations/run.h",
    "client/cc/client.h", "proto/transport.h", "tests/fakes/device.h",
    "engine/frontend/test_model.h", "engine/wire/testing/hostile.h",
]


class FloorsTest(unittest.TestCase):
    def violations(self, path, include):
        """What the check says of a house whose only include is `include` in `path`."""
        with tempfile.TemporaryDirectory() as root:
            for name in HEADERS + [path]:
                full = os.path.join(root, name)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as file:
                    file.write("#pragma once\n")
                    if name == path:
                        file.write(f"#include {include}\n")
            found, count = floors.check(root)
            self.assertGreaterEqual(count, len(HEADERS))
            for where, line, _, _ in found:
                self.assertEqual((where, line), (path, 2))
            return [what for _, _, _, what in found]

    def assert_allowed(self, path, include):
        self.assertEqual(self.violations(path, include), [])

    def assert_caught(self, path, include, words):
        found = self.violations(path, include)
        self.assertEqual(len(found), 1, f"{path} including {include}")
        self.assertIn(words, found[0])

    def test_down_and_own_folder_are_allowed(self):
        self.assert_allowed("engine/ir/x.cc", '"engine/base/status.h"')
        self.assert_allowed("engine/ir/x.cc", '"engine/ir/graph.h"')
        self.assert_allowed("engine/execution/x.cc", '"devices/api/device.h"')
        self.assert_allowed("engine/frontend/onnx/x.cc", '"engine/frontend/tensor/tensor.h"')
        self.assert_allowed("devices/cpu/x.cc", '"devices/api/device.h"')
        self.assert_allowed("devices/drivers.cc", '"devices/cpu/cpu.h"')
        self.assert_allowed("devices/remote/x.cc", '"client/cc/client.h"')
        self.assert_allowed("server/service/x.cc", '"server/session/session.h"')
        self.assert_allowed("client/cc/x.cc", '"proto/transport.h"')
        self.assert_allowed("client/cli/x.cc", '"client/cc/client.h"')

    def test_up_is_caught(self):
        self.assert_caught("engine/base/x.cc", '"engine/ir/graph.h"', "may not include engine/ir")
        self.assert_caught("engine/ir/x.h", '"engine/schedule/schedule.h"', "may not include")
        self.assert_caught("engine/rules/x.cc", '"engine/execution/executable.h"', "may not")
        self.assert_caught("engine/execution/x.cc", '"server/session/session.h"', "may not")
        self.assert_caught("server/session/x.cc", '"server/service/compute.h"', "may not")

    def test_same_floor_is_caught(self):
        self.assert_caught("engine/wire/x.cc", '"engine/rewrite/rewriter.h"', "may not include")
        self.assert_caught("engine/frontend/x.cc", '"engine/schedule/schedule.h"', "may not")
        self.assert_caught("devices/api/x.h", '"engine/ir/graph.h"', "may not include engine/ir")

    def test_drivers_are_walled(self):
        self.assert_caught("devices/cpu/x.cc", '"engine/ir/graph.h"', "may not include engine/ir")
        self.assert_caught("devices/null/x.cc", '"devices/cpu/cpu.h"', "may not include")
        self.assert_caught("devices/cuda/x.cc", '"client/cc/client.h"', "may not include")
        self.assert_caught("engine/execution/x.cc", '"devices/cpu/cpu.h"', "may not include")

    def test_client_does_not_know_the_server(self):
        self.assert_caught("client/cc/x.cc", '"server/session/session.h"', "may not include")
        self.assert_caught("client/cli/x.cc", '"engine/execution/executable.h"', "may not")

    def test_transport_is_for_the_two_ends(self):
        self.assert_caught("engine/wire/x.cc", '"proto/transport.h"', "may not include proto")
        self.assert_caught("proto/x.h", '"engine/base/status.h"', "proto may not include")

    def test_outside_headers(self):
        self.assert_allowed("engine/compile/x.cc", '"llvm/IR/Module.h"')
        self.assert_caught("engine/render/x.cc", "<llvm/IR/Module.h>", "LLVM belongs only in")
        self.assert_allowed("engine/wire/x.h", '"telegrad/v1/graph.pb.h"')
        self.assert_caught("engine/frontend/x.cc", '"telegrad/v1/graph.pb.h"', "Protobuf belongs")
        self.assert_allowed("server/service/x.cc", "<grpcpp/grpcpp.h>")
        self.assert_caught("server/session/x.cc", "<grpcpp/grpcpp.h>", "gRPC belongs only in")
        self.assert_caught("engine/wire/x.cc", '"telegrad/v1/compute.grpc.pb.h"', "gRPC belongs")

    def test_tests_and_mains_may_include_all(self):
        self.assert_allowed("engine/base/x_test.cc", '"engine/execution/executable.h"')
        self.assert_allowed("server/main.cc", '"devices/drivers.h"')
        self.assert_allowed("tests/server/x.cc", '"devices/cpu/cpu.h"')
        self.assert_caught("engine/execution/x.cc", '"tests/fakes/device.h"', "only tests")
        self.assert_caught("engine/frontend/x.cc", '"engine/frontend/test_model.h"', "only tests")
        self.assert_caught("engine/wire/x.cc", '"engine/wire/testing/hostile.h"', "only tests")
        self.assert_allowed("engine/frontend/test_x.h", '"engine/schedule/schedule.h"')

    def test_rooms(self):
        self.assert_allowed("engine/frontend/ops/x.cc", '"engine/frontend/tensor/tensor.h"')
        self.assert_allowed("engine/frontend/ops/x.cc", '"engine/frontend/ops/reduce.h"')
        self.assert_allowed("engine/frontend/onnx/x.cc", '"engine/frontend/io/zip.h"')
        self.assert_caught("engine/frontend/tensor/x.cc", '"engine/frontend/ops/reduce.h"', "room tensor may not")
        self.assert_caught("engine/frontend/io/x.cc", '"engine/frontend/nn/nn.h"', "room io may not")
        self.assert_allowed("server/operations/x.cc", '"server/session/turn.h"')
        self.assert_caught("server/session/x.cc", '"server/operations/run.h"', "room session may not include operations")
        self.assert_caught("server/data/x.cc", '"server/session/session.h"', "room data may not include session")
        self.assert_caught("server/new/x.cc", '"server/session/session.h"', "has no row in ROOMS")
        self.assert_caught("engine/frontend/new/x.cc", '"engine/frontend/nn/nn.h"', "has no row in ROOMS")

    def test_form(self):
        self.assert_caught("engine/ir/x.cc", "<engine/base/status.h>", "with quotes")
        self.assert_caught("engine/ir/x.cc", '"engine/base/gone.h"', "no such file")
        self.assert_caught("engine/ir/x.cc", '"graph.h"', "from the repository's root")
        self.assert_caught("engine/new/x.cc", '"engine/base/status.h"', "has no row")


if __name__ == "__main__":
    unittest.main()
