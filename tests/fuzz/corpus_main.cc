// Runs a fuzz target once on each file of a corpus, and on prefixes and bit flips of each.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s CORPUS\n", argv[0]);
    return 2;
  }
  int inputs = 0;
  const auto run = [&](const std::vector<uint8_t>& bytes) {
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    ++inputs;
  };
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    std::ifstream in(entry.path(), std::ios::binary);
    std::vector<uint8_t> bytes(std::istreambuf_iterator<char>(in), {});
    run(bytes);
    const size_t step = bytes.size() / 64 + 1;
    for (size_t i = 0; i < bytes.size(); i += step) {
      run({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(i)});
      std::vector<uint8_t> flipped = bytes;
      flipped[i] ^= static_cast<uint8_t>(1 << (i % 8));
      run(flipped);
    }
  }
  std::printf("%d inputs\n", inputs);
  return inputs > 0 ? 0 : 1;
}
