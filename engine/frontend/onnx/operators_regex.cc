// RegexFullMatch, on the host: strings are always known at import.
#include <re2/re2.h>

#include "engine/frontend/onnx/operators.h"

namespace telegrad::onnx {
namespace {

constexpr int64_t kMaxPatternMemory = int64_t{1} << 20;  // of the compiled pattern

}  // namespace

absl::Status RegexFullMatchOp(NodeContext& c) {
  TG_ASSIGN_OR_RETURN(const StringTensor* x, c.InputStrings(0));
  TG_ASSIGN_OR_RETURN(const Attribute* pattern, c.Required("pattern", AttributeType::kString));
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kMaxPatternMemory);
  const RE2 regex(re2::StringPiece(pattern->s.data(), pattern->s.size()), options);
  if (!regex.ok()) return InvalidArgument("'pattern' is no pattern of RE2: ", regex.error());
  HostTensor out{DType::kBool, x->shape, {}};
  for (const std::string& text : x->values) {
    // The time is linear in the text for each of the pattern's states.
    TG_RETURN_IF_ERROR(c.values().budget()->SpendSteps(static_cast<int64_t>(text.size()) + 1));
    out.bytes.push_back(RE2::FullMatch(text, regex) ? '\1' : '\0');
  }
  return c.OutputKnown(std::move(out));
}

}  // namespace telegrad::onnx
