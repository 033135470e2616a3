// telegrad-opt: text IR in, named passes, text IR out.
#include <cstdio>
#include <iostream>
#include <iterator>

#include "engine/base/flags.h"
#include "engine/tools/opt.h"

int main(int argc, char** argv) {
  const telegrad::OptResult result = telegrad::RunOpt(telegrad::Arguments(argc, argv), [] {
    return std::string(std::istreambuf_iterator<char>(std::cin), {});
  });
  std::cerr << result.err;
  std::cout << result.out << std::flush;
  if (!std::cout) return 1;
  return result.exit_code;
}
