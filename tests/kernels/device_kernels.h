// For tests of the CPU device: kernels written as LLVM IR, which do what no program can express
// (append a digit, wait for another thread).
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "engine/base/status.h"
#include "gmock/gmock.h"
#include "tests/devices/fixture.h"
#include "tests/kernels/kernel_fixture.h"

namespace telegrad {

inline std::unique_ptr<Device> Open(CpuOptions options = {}) {
  if (options.threads == 0) options.threads = 2;
  return OpenHost(options);
}

// Of one buffer.
inline std::shared_ptr<LoadedProgram> LoadText(Device& device, const std::string& text,
                                               const std::string& name) {
  auto image = Compile(text, name, HostTarget(1));
  EXPECT_TRUE(image.ok()) << image.status();
  image->signature.parameters = FunctionParameters(1);
  auto program = device.Load(*image);
  EXPECT_TRUE(program.ok()) << program.status();
  return *program;
}

// buffer[0] = buffer[0] * 10 + digit: the result tells the order of runs.
inline std::string AppendDigit(int digit) {
  return StrCat(
      "define void @append(ptr %buffers, i64 %begin, i64 %end) {\n"
      "  %b = load ptr, ptr %buffers\n  %x = load i64, ptr %b\n  %y = mul i64 %x, 10\n"
      "  %z = add i64 %y, ",
      digit, "\n  store i64 %z, ptr %b\n  ret void\n}\n");
}

inline std::shared_ptr<const CommandBuffer> EncodeOne(Device& device,
                                                      std::shared_ptr<LoadedProgram> program) {
  Command command;
  command.launch.program = std::move(program);
  command.launch.arguments = {{0, 0}};
  auto encoded = device.Encode({command});
  EXPECT_TRUE(encoded.ok()) << encoded.status();
  return *encoded;
}

inline std::shared_ptr<const CommandBuffer> Appending(Device& device, int digit) {
  return EncodeOne(device, LoadText(device, AppendDigit(digit), "append"));
}

inline std::shared_ptr<Memory> Word(Device& device) { return *device.Alloc(8); }
inline int64_t& Value(const std::shared_ptr<Memory>& word) {
  return *static_cast<int64_t*>(word->host());
}

}  // namespace telegrad
