// Settings for all models and for single ones, of which the most particular holds. Settings that
// cannot change are accepted with their fixed value only.
#include "server/serving/trace_settings.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr std::string_view kLevel = "trace_level", kRate = "trace_rate", kCount = "trace_count";
// What is always so here, and may be said as it is.
constexpr std::pair<std::string_view, std::string_view> kFixed[] = {
    {"trace_file", ""}, {"log_frequency", "0"}, {"trace_mode", "opentelemetry"}};

absl::StatusOr<std::optional<int64_t>> NumberOf(std::string_view name,
                                                const std::vector<std::string>& values,
                                                int64_t least) {
  if (values.empty()) return std::optional<int64_t>();
  const std::string& text = values.front();
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (values.size() > 1 || error != std::errc() || end != text.data() + text.size() ||
      number < least) {
    return InvalidArgument(name, " is '", Clip(text, 32), "', expected one number of at least ",
                           least);
  }
  return std::optional(number);
}

absl::StatusOr<std::optional<bool>> LevelOf(const std::vector<std::string>& values) {
  std::optional<bool> on;
  for (const std::string& value : values) {
    if (value == "TENSORS") {
      return Unimplemented(
          "trace_level TENSORS: the contents of requests are not recorded; "
          "expected TIMESTAMPS or OFF");
    }
    if (value != "TIMESTAMPS" && value != "OFF") {
      return InvalidArgument("trace_level is '", Clip(value, 32), "', expected TIMESTAMPS or OFF");
    }
    if (on.has_value() && *on != (value == "TIMESTAMPS")) {
      return InvalidArgument("trace_level is both TIMESTAMPS and OFF");
    }
    on = value == "TIMESTAMPS";
  }
  return on;
}

absl::Status CheckFixed(std::string_view name, const std::vector<std::string>& values) {
  for (const auto& [fixed, value] : kFixed) {
    if (name != fixed) continue;
    if (values.empty() || (values.size() == 1 && values.front() == value)) return absl::OkStatus();
    return Unimplemented(name, " cannot be chosen, it is '", value,
                         "'; spans go where --otlp and --access-log say");
  }
  return InvalidArgument("there is no trace setting '", Clip(name, 64), "'");
}

}  // namespace

const TraceSettings::Chosen& TraceSettings::ChosenLocked(std::string_view model) const {
  const auto it = models_.find(model);
  return it == models_.end() ? all_ : it->second;
}

absl::Status TraceSettings::Set(const std::string& model, const TraceValues& values) {
  const MutexLock lock(mutex_);
  const bool own = !model.empty() && models_.contains(model);
  Chosen next = model.empty() || own ? ChosenLocked(model) : Chosen{};
  for (const auto& [name, said] : values) {
    if (name == kLevel) {
      TG_ASSIGN_OR_RETURN(next.on, LevelOf(said));
    } else if (name == kRate) {
      TG_ASSIGN_OR_RETURN(next.rate, NumberOf(name, said, 1));
    } else if (name == kCount) {
      TG_ASSIGN_OR_RETURN(next.count, NumberOf(name, said, -1));
      next.seen = next.taken = 0;
    } else {
      TG_RETURN_IF_ERROR(CheckFixed(name, said));
    }
  }
  if (model.empty()) {
    all_ = next;
  } else if (next.on || next.rate || next.count) {
    models_[model] = next;
  } else {
    models_.erase(model);
  }
  bool any = all_.on.value_or(false);
  for (const auto& [name, chosen] : models_) any |= chosen.on.value_or(false);
  any_.store(any, std::memory_order_relaxed);
  return absl::OkStatus();
}

TraceSettings::Settings TraceSettings::SettingsLocked(const Chosen& of) const {
  Settings out;
  for (const Chosen* chosen : {&all_, &of}) {
    out.on = chosen->on.value_or(out.on);
    out.rate = chosen->rate.value_or(out.rate);
    out.count = chosen->count.value_or(out.count);
  }
  return out;
}

TraceValues TraceSettings::Get(const std::string& model) const {
  const MutexLock lock(mutex_);
  const Chosen& chosen = ChosenLocked(model);
  const Settings settings = SettingsLocked(chosen);
  const int64_t left =
      settings.count < 0 ? -1 : std::max<int64_t>(settings.count - chosen.taken, 0);
  TraceValues out = {{std::string(kLevel), {settings.on ? "TIMESTAMPS" : "OFF"}},
                     {std::string(kRate), {StrCat(settings.rate)}},
                     {std::string(kCount), {StrCat(left)}}};
  for (const auto& [name, value] : kFixed) out[std::string(name)] = {std::string(value)};
  return out;
}

bool TraceSettings::Takes(std::string_view model) {
  if (!any_.load(std::memory_order_relaxed)) return false;
  const MutexLock lock(mutex_);
  const auto it = models_.find(model);
  Chosen& chosen = it == models_.end() ? all_ : it->second;
  const Settings settings = SettingsLocked(chosen);
  if (!settings.on || (settings.count >= 0 && chosen.taken >= settings.count)) return false;
  if (chosen.seen++ % settings.rate != 0) return false;
  ++chosen.taken;
  return true;
}

}  // namespace telegrad
