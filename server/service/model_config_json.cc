// Checks the text with the strict reader, which has limits, before protobuf maps its members to
// fields; fields that protobuf does not know are passed over and logged, as in config.pbtxt.
#include <string>

#include "engine/base/json.h"
#include "engine/base/status.h"
#include "google/protobuf/util/json_util.h"
#include "server/admin/log.h"
#include "server/service/model_config_text.h"

namespace telegrad {
namespace {

namespace util = google::protobuf::util;

absl::Status FromJson(std::string_view json, bool ignore_unknown, inference::ModelConfig* out) {
  util::JsonParseOptions options;
  options.ignore_unknown_fields = ignore_unknown;
  const auto parsed = util::JsonStringToMessage({json.data(), json.size()}, out, options);
  if (parsed.ok()) return absl::OkStatus();
  return InvalidArgument(
      Clip(std::string_view(parsed.message().data(), parsed.message().size()), 512));
}

}  // namespace

absl::StatusOr<ModelConfig> ParseConfigJson(std::string_view json) {
  JsonReader reader(json);
  const bool object = reader.Eat('{');
  reader = JsonReader(json);
  if (!object || !reader.SkipValue() || !reader.AtEnd()) {
    return InvalidArgument("byte ", reader.position(),
                           ": expected an object in JSON, nested at most ", JsonReader::kMaxNesting,
                           " deep");
  }
  inference::ModelConfig in;
  if (const absl::Status strict = FromJson(json, /*ignore_unknown=*/false, &in); !strict.ok()) {
    in.Clear();
    TG_RETURN_IF_ERROR(FromJson(json, /*ignore_unknown=*/true, &in));
    Log(LogLevel::kWarning, "model_config",
        {{"model", in.name()}, {"message", StrCat("passed over: ", ToStd(strict.message()))}});
  }
  return FromProto(
      in, json.find("max_batch_size") != json.npos || json.find("maxBatchSize") != json.npos);
}

}  // namespace telegrad
