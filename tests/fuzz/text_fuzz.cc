// The text form of graphs and programs: whatever parses prints to a text that parses to the same,
// and verifiers of all levels take whatever parses.
#include <cstring>
#include <random>

#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/graph_mutator.h"

namespace telegrad {
namespace {

void CheckProgram(std::string_view text, fuzz::Count* verified) {
  const auto program = ParseProgram(text);
  if (!program.ok()) return;
  if (Verify(*program).ok()) verified->Passed();
  const std::string printed = Print(*program);
  const auto again = ParseProgram(printed);
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(Print(*again) == printed);
}

fuzz::NodeList Decode(const uint8_t* data, size_t size) {
  Graph graph;
  const auto root = Parse({reinterpret_cast<const char*>(data), size}, &graph);
  return root.ok() && root->is(Op::kSink) ? fuzz::ToList(*root) : fuzz::NodeList();
}

size_t Write(UOp root, uint8_t* out, size_t max_size) {
  const std::string text = root.valid() ? Print(root) : "";
  if (text.size() > max_size) return 0;
  std::memcpy(out, text.data(), text.size());
  return text.size();
}

}  // namespace
}  // namespace telegrad

FUZZ_TARGET(data) {
  using namespace telegrad;
  static fuzz::Count count("verified");
  count.Input();
  const std::string_view text(reinterpret_cast<const char*>(data.data()), data.size());
  if (text.starts_with("program")) return CheckProgram(text, &count);
  Graph graph, again;
  const auto root = Parse(text, &graph);
  if (!root.ok()) return;
  const bool tensor = Verify(*root, kTensorLevel).ok();
  if (Verify(*root, kKernelLevel).ok() || tensor) count.Passed();
  const std::string printed = Print(*root);
  const auto parsed = Parse(printed, &again);
  FUZZ_CHECK(parsed.ok());
  FUZZ_CHECK(Print(*parsed) == printed);
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  using namespace telegrad;
  std::mt19937_64 rng(seed);
  const fuzz::NodeList list = Decode(data, size);
  // Kernels and programs are mutated as text, and so is a graph now and then.
  if ((list.empty() && rng() % 4 != 0) || rng() % 4 == 0) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  Graph graph;
  const size_t n = Write(fuzz::Mutate(list, rng(), &graph), data, max_size);
  return n > 0 ? n : LLVMFuzzerMutate(data, size, max_size);
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* data1, size_t size1,
                                            const uint8_t* data2, size_t size2, uint8_t* out,
                                            size_t max_size, unsigned int seed) {
  using namespace telegrad;
  Graph graph;
  return Write(fuzz::Splice(Decode(data1, size1), Decode(data2, size2), seed, &graph), out,
               max_size);
}
