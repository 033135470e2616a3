// telegrad-opt: text IR in, named passes, text IR out.
#include <cstdio>
#include <iostream>
#include <iterator>

#include "devices/cpu/cpu_device.h"
#include "engine/base/flags.h"
#include "engine/tools/opt.h"

int main(int argc, char** argv) {
  const auto read_stdin = [] { return std::string(std::istreambuf_iterator<char>(std::cin), {}); };
  const auto open = [](const telegrad::Target& target) {
    telegrad::CpuOptions options;
    options.target = target;
    options.threads = target.threads;
    return telegrad::OpenCpu(options);
  };
  const telegrad::OptResult result =
      telegrad::RunOpt(telegrad::Arguments(argc, argv), read_stdin, open);
  std::cerr << result.err;
  std::cout << result.out << std::flush;
  if (!std::cout) return 1;
  return result.exit_code;
}
