// Reads an object of settings with bounds on its members and values, and writes the settings
// that are in force.
#include "server/http/settings_json.h"

#include <utility>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr size_t kMostSettings = 64, kMostValues = 16;

// An object whose members `value` reads, each name once.
template <typename Values, typename Value>
absl::StatusOr<Values> ParseMembers(std::string_view body, Value value) {
  Values out;
  if (body.empty()) return out;
  JsonReader reader(body);
  bool fine = reader.Eat('{');
  if (fine && !reader.Eat('}')) {
    do {
      std::string name;
      fine = reader.String(&name) && reader.Eat(':') && !out.contains(name) &&
             out.size() < kMostSettings && value(reader, &out[name]);
    } while (fine && reader.Eat(','));
    fine = fine && reader.Eat('}');
  }
  if (fine && reader.AtEnd()) return out;
  return InvalidArgument("the body is wrong at byte ", reader.position(),
                         ": expected an object of at most ", kMostSettings, " settings in JSON");
}

// "text", ["text", ...] or null; clients write numbers as texts.
bool TraceValue(std::string_view body, JsonReader& reader, std::vector<std::string>* out) {
  if (reader.Eat('[')) {
    if (reader.Eat(']')) return true;
    do {
      if (out->size() == kMostValues || !reader.String(&out->emplace_back())) return false;
    } while (reader.Eat(','));
    return reader.Eat(']');
  }
  std::string text;
  std::string_view number;
  if (reader.String(&text)) {
    out->push_back(std::move(text));
    return true;
  }
  if (reader.NumberText(&number)) {
    out->emplace_back(number);
    return true;
  }
  constexpr std::string_view kNull = "null";  // as for all models
  return reader.SkipValue() && body.substr(0, reader.position()).ends_with(kNull);
}

bool LogValue(JsonReader& reader, LogSettingValue* out) {
  std::string text;
  int64_t number = 0;
  bool flag = false;
  if (reader.String(&text)) {
    *out = std::move(text);
  } else if (reader.Size(&number)) {
    *out = number;
  } else if (reader.Bool(&flag)) {
    *out = flag;
  } else {
    return false;
  }
  return true;
}

}  // namespace

absl::StatusOr<TraceValues> ParseTraceSettings(std::string_view body) {
  return ParseMembers<TraceValues>(
      body, [&](JsonReader& reader, auto* out) { return TraceValue(body, reader, out); });
}

absl::StatusOr<LogValues> ParseLogSettings(std::string_view body) {
  return ParseMembers<LogValues>(body, LogValue);
}

std::string TraceSettingsJson(const TraceValues& values) {
  std::string out = "{";
  for (const auto& [name, texts] : values) {
    StrAppend(&out, out.size() > 1 ? "," : "", JsonQuote(name), ":");
    if (name != "trace_level") {  // the one that is a list
      out += JsonQuote(texts.empty() ? "" : texts.front());
      continue;
    }
    out += "[";
    for (size_t i = 0; i < texts.size(); ++i)
      StrAppend(&out, i > 0 ? "," : "", JsonQuote(texts[i]));
    out += "]";
  }
  return out + "}";
}

std::string LogSettingsJson(const LogValues& values) {
  std::string out = "{";
  for (const auto& [name, value] : values) {
    StrAppend(&out, out.size() > 1 ? "," : "", JsonQuote(name), ":");
    if (const auto* flag = std::get_if<bool>(&value)) out += *flag ? "true" : "false";
    if (const auto* number = std::get_if<int64_t>(&value)) StrAppend(&out, *number);
    if (const auto* text = std::get_if<std::string>(&value)) out += JsonQuote(*text);
  }
  return out + "}";
}

}  // namespace telegrad
