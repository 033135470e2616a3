// The text form: whatever parses prints to a text that parses to the same.
#include "engine/ir/text.h"
#include "tests/fuzz/fuzz.h"

FUZZ_TARGET(data) {
  using namespace telegrad;
  const std::string_view text(reinterpret_cast<const char*>(data.data()), data.size());
  Graph graph, again;
  const auto root = Parse(text, &graph);
  if (!root.ok()) return;
  const std::string printed = Print(*root);
  const auto parsed = Parse(printed, &again);
  FUZZ_CHECK(parsed.ok());
  FUZZ_CHECK(Print(*parsed) == printed);
}
