#include "server/http/load_json.h"

#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "engine/base/status.h"
#include "server/http/json_members.h"

namespace telegrad {
namespace {

// Reads "parameters" by `parameter`, which gives an error to `refused` for one that is wrong in
// another way than its JSON. An empty body has none.
template <typename Parameter>
absl::Status ReadParameters(std::string_view body, const absl::Status& refused,
                            Parameter parameter) {
  if (body.empty()) return absl::OkStatus();
  JsonReader reader(body);
  const bool read = ReadMembers(reader, [&](const std::string& key) {
    if (key != "parameters") return reader.SkipValue();
    return ReadMembers(reader, [&](const std::string& name) { return parameter(reader, name); });
  });
  TG_RETURN_IF_ERROR(refused);
  if (read && reader.AtEnd()) return absl::OkStatus();
  return InvalidArgument("the body is wrong at byte ", reader.position(),
                         ": expected an object in JSON");
}

}  // namespace

absl::StatusOr<UnloadJson> ParseUnloadJson(std::string_view body) {
  UnloadJson out;
  absl::Status refused;
  const auto parameter = [&](JsonReader& reader, const std::string& name) {
    if (name == "unload_dependents") return reader.Bool(&out.parts);
    refused = Unimplemented("parameter '", Clip(name, 64),
                            "' is not known; an unload takes 'unload_dependents'");
    return false;
  };
  TG_RETURN_IF_ERROR(ReadParameters(body, refused, parameter));
  return out;
}

absl::StatusOr<LoadOverrides> ParseLoadJson(std::string_view body) {
  LoadOverrides out;
  absl::Status refused;
  const auto parameter = [&](JsonReader& reader, const std::string& name) {
    std::string text;
    if (name != kConfigParameter && !name.starts_with(kFileParameter)) {
      refused = out.Add(name, "");  // says that it is not known
      return false;
    }
    if (!reader.String(&text)) {
      refused = InvalidArgument("parameter '", Clip(name, 64), "' is not a string");
      return false;
    }
    if (name.starts_with(kFileParameter)) {
      std::string content;
      if (!absl::Base64Unescape(ToAbsl(text), &content)) {
        refused = InvalidArgument("parameter '", Clip(name, 64), "' is not in base64");
        return false;
      }
      text = std::move(content);
    }
    refused = out.Add(name, std::move(text));
    return refused.ok();
  };
  TG_RETURN_IF_ERROR(ReadParameters(body, refused, parameter));
  return out;
}

}  // namespace telegrad
