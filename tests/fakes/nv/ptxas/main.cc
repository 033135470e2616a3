// fake_ptxas: makes cubins for the fake GPU. Takes the arguments that telegrad passes to ptxas, and
// no others.
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/fakes/nv/ptxas/make_cubin.h"

namespace telegrad::fakes {
namespace {

int Main(const std::vector<std::string>& arguments) {
  if (arguments == std::vector<std::string>{"--version"}) {
    std::printf("fake_ptxas: PTX in a cubin for tests\nrelease 0.0, V0.0.1\n");
    return 0;
  }
  if (arguments.size() != 5 || arguments[0] != "-arch" || arguments[3] != "-o") {
    std::fprintf(stderr, "fake_ptxas: unknown arguments\n");
    return 255;
  }
  std::ifstream in(arguments[2], std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  std::string log;
  const std::string cubin = CubinOfPtx(text, arguments[1], &log);
  if (cubin.empty()) {
    std::fprintf(stderr, "ptxas fatal   : %s\n", log.c_str());
    return 255;
  }
  std::ofstream out(arguments[4], std::ios::binary);
  out << cubin;
  return out.good() ? 0 : 255;
}

}  // namespace
}  // namespace telegrad::fakes

int main(int argc, char** argv) {
  return telegrad::fakes::Main(std::vector<std::string>(argv + 1, argv + argc));
}
