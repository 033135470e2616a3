// Loads a code object and launches its first kernel, whose arguments are the addresses of the
// buffers and then the scalars.
#include "tests/fakes/amd/testing/run_kernel.h"

namespace fakeamd {

TestRun RunObject(const Bytes& elf, const std::string& processor, const TestShape& shape,
                  std::vector<Bytes>* buffers, const std::vector<uint64_t>& scalars) {
  TestRun run;
  const CodeObject object = LoadCodeObject(elf, processor);
  run.error = object.error;
  if (!run.error.empty()) return run;
  MemoryView memory;
  std::vector<uint64_t> arguments;
  for (size_t b = 0; b < buffers->size(); ++b) {
    Bytes& buffer = (*buffers)[b];
    memory.push_back(
        {.base = (b + 1) << 32, .bytes = buffer.size(), .host = buffer.data(), .keep = nullptr});
    arguments.push_back((b + 1) << 32);
  }
  arguments.insert(arguments.end(), scalars.begin(), scalars.end());
  Bytes kernarg = ToBytes(arguments);
  kernarg.resize(object.kernels.at(0).kernarg_bytes);
  const Launch launch = {.object = &object,
                         .kernel = &object.kernels.at(0),
                         .grid = {shape.groups, 1, 1},
                         .block = {shape.threads, 1, 1},
                         .dynamic_group_bytes = shape.local_bytes,
                         .kernarg = kernarg,
                         .memory = &memory,
                         .budget = shape.budget,
                         .check_races = shape.check_races};
  run.fault = Run(launch, &run.counts);
  return run;
}

TestRun RunIr(const std::string& ir, const std::string& processor, const TestShape& shape,
              std::vector<Bytes>* buffers, const std::vector<uint64_t>& scalars) {
  TestRun run;
  const Bytes elf = CompileIr(ir, processor, &run.error);
  if (elf.empty()) return run;
  return RunObject(elf, processor, shape, buffers, scalars);
}

}  // namespace fakeamd
