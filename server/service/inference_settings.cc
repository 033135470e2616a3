// The calls of the Open Inference Protocol that read and change what is traced and logged.
#include <string>
#include <utility>

#include "engine/base/status.h"
#include "server/service/inference_service.h"
#include "server/serving/log_settings.h"
#include "server/serving/trace_settings.h"

namespace telegrad {
namespace {

constexpr int kMostSettings = 64;

using LogSetting = inference::LogSettingsRequest::SettingValue;

absl::StatusOr<LogSettingValue> FromProto(const std::string& name, const LogSetting& value) {
  switch (value.parameter_choice_case()) {
    case LogSetting::kBoolParam:
      return LogSettingValue(value.bool_param());
    case LogSetting::kUint32Param:
      return LogSettingValue(int64_t{value.uint32_param()});
    case LogSetting::kStringParam:
      return LogSettingValue(value.string_param());
    case LogSetting::PARAMETER_CHOICE_NOT_SET:
      break;
  }
  return InvalidArgument("setting '", Clip(name, 64), "' has no value");
}

absl::Status CheckCount(int count) {
  if (count <= kMostSettings) return absl::OkStatus();
  return ResourceExhausted("the request has ", count, " settings; the limit is ", kMostSettings);
}

}  // namespace

absl::Status InferenceService::TraceSetting(const Caller&,
                                            const inference::TraceSettingRequest& request,
                                            inference::TraceSettingResponse* response) {
  TG_ASSIGN_OR_RETURN(ModelServer * models, Models());
  TG_RETURN_IF_ERROR(CheckCount(request.settings_size()));
  TraceValues values;
  for (const auto& [name, value] : request.settings()) {
    values[name].assign(value.value().begin(), value.value().end());
  }
  TG_ASSIGN_OR_RETURN(const TraceValues now, models->Traces(request.model_name(), values));
  for (const auto& [name, value] : now) {
    (*response->mutable_settings())[name].mutable_value()->Add(value.begin(), value.end());
  }
  return absl::OkStatus();
}

absl::Status InferenceService::LogSettings(const Caller&,
                                           const inference::LogSettingsRequest& request,
                                           inference::LogSettingsResponse* response) {
  TG_RETURN_IF_ERROR(Models().status());
  TG_RETURN_IF_ERROR(CheckCount(request.settings_size()));
  LogValues values;
  for (const auto& [name, value] : request.settings()) {
    TG_ASSIGN_OR_RETURN(values[name], FromProto(name, value));
  }
  TG_RETURN_IF_ERROR(SetLogSettings(values));
  for (const auto& [name, value] : GetLogSettings()) {
    auto& out = (*response->mutable_settings())[name];
    if (const auto* flag = std::get_if<bool>(&value)) out.set_bool_param(*flag);
    if (const auto* number = std::get_if<int64_t>(&value)) {
      out.set_uint32_param(static_cast<uint32_t>(*number));
    }
    if (const auto* text = std::get_if<std::string>(&value)) out.set_string_param(*text);
  }
  return absl::OkStatus();
}

}  // namespace telegrad
