// Runs test kernels on buffers that lie at device addresses far apart.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/fakes/amd/amd_machine.h"
#include "tests/fakes/amd/testing/compile_ir.h"

namespace fakeamd {

using Bytes = std::vector<uint8_t>;

template <class T>
Bytes ToBytes(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}
template <class T>
std::vector<T> FromBytes(const Bytes& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

struct TestRun {
  std::string error;  // of compiling or loading
  Fault fault;
  Counts counts;
};

struct TestShape {
  uint32_t groups = 1;
  uint32_t threads = 128;
  uint32_t local_bytes = 0;
  uint64_t budget = 1 << 22;
  bool check_races = true;
};

// The first kernel of `elf` with the addresses of `buffers` and then `scalars` as its arguments.
TestRun RunObject(const Bytes& elf, const std::string& processor, const TestShape& shape,
                  std::vector<Bytes>* buffers, const std::vector<uint64_t>& scalars = {});
// The same for a kernel in LLVM IR.
TestRun RunIr(const std::string& ir, const std::string& processor, const TestShape& shape,
              std::vector<Bytes>* buffers, const std::vector<uint64_t>& scalars = {});

}  // namespace fakeamd
