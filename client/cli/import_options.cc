// Parses NAME=AxBxC, NAME=N and NAME=MIN..MAX; errors name the flag and the part that is wrong.
#include "client/cli/import_options.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"

namespace telegrad::cli {
namespace {

// NAME=VALUE; a name may hold "=", a value may not.
absl::StatusOr<std::pair<std::string, std::string>> NameAndValue(std::string_view flag,
                                                                 const std::string& text) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0) {
    return InvalidArgument("--", flag, " ", text, ": expected NAME=VALUE");
  }
  return std::pair(text.substr(0, at), text.substr(at + 1));
}

absl::StatusOr<int64_t> ParseSize(std::string_view flag, const std::string& text,
                                  std::string_view number) {
  int64_t size = 0;
  if (!absl::SimpleAtoi(ToAbsl(number), &size) || size < 0) {
    return InvalidArgument("--", flag, " ", text, ": \"", number, "\" is not a size");
  }
  return size;
}

}  // namespace

absl::StatusOr<ImportOptions> ImportOptionsOf(const Flags& flags) {
  ImportOptions options;
  for (const std::string& text : flags.GetList("shape")) {
    TG_ASSIGN_OR_RETURN(const auto pair, NameAndValue("shape", text));
    Shape shape;
    if (!pair.second.empty()) {
      for (const absl::string_view part : absl::StrSplit(pair.second, 'x')) {
        TG_ASSIGN_OR_RETURN(const int64_t size, ParseSize("shape", text, ToStd(part)));
        shape.push_back(size);
      }
    }
    options.input_shapes[pair.first] = std::move(shape);
  }
  for (const std::string& text : flags.GetList("dim")) {
    TG_ASSIGN_OR_RETURN(const auto pair, NameAndValue("dim", text));
    TG_ASSIGN_OR_RETURN(options.dims[pair.first], ParseSize("dim", text, pair.second));
  }
  return options;
}

absl::StatusOr<std::map<std::string, DimRange, std::less<>>> DimRangesOf(const Flags& flags) {
  std::map<std::string, DimRange, std::less<>> out;
  for (const std::string& text : flags.GetList("dim")) {
    TG_ASSIGN_OR_RETURN(const auto pair, NameAndValue("dim", text));
    const size_t dots = pair.second.find("..");
    if (dots == std::string::npos) {
      return InvalidArgument("--dim ", text, ": expected NAME=MIN..MAX");
    }
    DimRange range;
    TG_ASSIGN_OR_RETURN(range.min, ParseSize("dim", text, pair.second.substr(0, dots)));
    TG_ASSIGN_OR_RETURN(range.max, ParseSize("dim", text, pair.second.substr(dots + 2)));
    if (range.max < range.min) return InvalidArgument("--dim ", text, ": the range is empty");
    out[pair.first] = range;
  }
  return out;
}

}  // namespace telegrad::cli
