// Random graphs come from a seed, their reference results from the interpreter of tensor graphs.
// A graph whose results differ is made smaller before it is reported.
#include "tests/conformance/compare.h"

#include <cstdlib>

#include "engine/base/status.h"
#include "engine/ir/text.h"
#include "engine/ir/verify.h"
#include "engine/reference/tensor_eval.h"
#include "tests/conformance/minimize.h"

namespace telegrad::testing {
namespace {

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::strtoull(value, nullptr, 10) : otherwise;
}

}  // namespace

RandomGraph GraphOfSeed(uint64_t seed, Graph* graph) {
  std::mt19937_64 rng(seed);
  const auto vocabulary = seed % 4 == 0 ? Vocabulary::kPlain : Vocabulary::kAll;
  RandomGraph random = MakeRandomGraph(rng, 6 + static_cast<int>(seed % 30), graph, vocabulary);
  if (!random.sink.valid() || !Verify(random.sink, kTensorLevel).ok()) random.sink = UOp();
  return random;
}

absl::Status Judge(const RandomGraph& random, Slots* slots) {
  reference::Variables variables;
  for (const VarValue& v : random.variables) variables[v.id] = v.value;
  Budget budget(WithoutDeadline());
  return reference::Evaluate(random.sink, *slots, &budget, variables);
}

std::string Compare(const RandomGraph& random, const Way& way) {
  Slots want = random.slots, got = random.slots;
  if (auto s = Judge(random, &want); !s.ok()) return StrCat("the judge: ", s.ToString());
  const std::vector<VarValue> variables = VariablesOf(random.sink, random.variables);
  if (auto s = way(random.sink, variables, &got); !s.ok()) return s.ToString();
  for (size_t i = 0; i < want.size(); ++i) {
    const std::string difference = Difference(random.dtypes[i], random.exact[i], want[i], got[i]);
    if (!difference.empty()) return StrCat("slot ", i, ", ", difference);
  }
  return "";
}

std::string CompareMany(const Way& way, uint64_t cases) {
  const uint64_t first = FromEnvironment("TELEGRAD_SEED", 1);
  const uint64_t last = first + FromEnvironment("TELEGRAD_CASES", cases);
  for (uint64_t seed = first; seed < last; ++seed) {
    Graph graph;
    const RandomGraph random = GraphOfSeed(seed, &graph);
    if (!random.sink.valid()) continue;
    const std::string difference = Compare(random, way);
    if (difference.empty()) continue;
    const Failure small = Minimize(random, [&](const RandomGraph& r) {
      const std::string d = Compare(r, way);
      return !d.empty() && d.starts_with("the judge") == difference.starts_with("the judge");
    });
    return StrCat("seed ", seed, ": ", difference,
                  "\nthe smallest graph that differs: ", Compare(small.random, way), "\n",
                  Print(small.random.sink));
  }
  return "";
}

}  // namespace telegrad::testing
