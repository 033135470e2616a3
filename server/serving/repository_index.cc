// Of the repository, what is asked of it while models are served.
#include <algorithm>
#include <charconv>
#include <utility>

#include "engine/base/status.h"
#include "server/serving/repository.h"

namespace telegrad {

int64_t ModelVersionOf(std::string_view text) {
  int64_t version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  if (error != std::errc() || end != text.data() + text.size() || version < 1) return 0;
  return text.front() == '0' ? 0 : version;
}

absl::Status UnknownModel(std::string_view name, std::string_view version) {
  return NotFound("Request for unknown model: '", Clip(name, 256), "'",
                  version.empty() ? "" : StrCat(" version ", Clip(version, 32)), " is not found");
}

absl::StatusOr<std::shared_ptr<ServedModel>> ModelRepository::Find(std::string_view name,
                                                                   std::string_view version) const {
  const int64_t number = ModelVersionOf(version);
  if (!version.empty() && number == 0) {
    return InvalidArgument("'", Clip(version, 32), "' is not a version; expected 1, 2, ...");
  }
  const MutexLock lock(mutex_);
  const auto it = entries_.find(name);
  if (it == entries_.end()) return UnknownModel(name, "");
  const Entry& entry = it->second;
  if (number > 0) {
    if (const auto at = entry.versions.find(number); at != entry.versions.end()) return at->second;
    const auto state = entry.states.find(number);
    if (state == entry.states.end()) return UnknownModel(name, version);
    return absl::UnavailableError(StrCat("Request for model '", name, "' version ", version,
                                         ", which is not ready: ", state->second.reason));
  }
  if (!entry.versions.empty()) return entry.versions.rbegin()->second;
  return absl::UnavailableError(StrCat("Request for model '", name, "', which is not ready: ",
                                       entry.reason.empty() ? "it is being loaded" : entry.reason));
}

std::vector<std::string> ModelRepository::Versions(std::string_view name) const {
  std::vector<std::string> out;
  const MutexLock lock(mutex_);
  const auto it = entries_.find(name);
  if (it == entries_.end()) return out;
  for (const auto& [version, model] : it->second.versions) out.push_back(model->version());
  return out;
}

std::vector<std::shared_ptr<ServedModel>> ModelRepository::All() const {
  std::vector<std::shared_ptr<ServedModel>> out;
  const MutexLock lock(mutex_);
  for (const auto& [name, entry] : entries_) {
    for (const auto& [version, model] : entry.versions) out.push_back(model);
  }
  return out;
}

std::vector<IndexRow> ModelRepository::Index() const {
  std::vector<IndexRow> out;
  const MutexLock lock(mutex_);
  for (const auto& [name, entry] : entries_) {
    for (const auto& [version, state] : entry.states) {
      out.push_back({name, StrCat(version), state.state, state.reason});
    }
    if (entry.states.empty()) {
      out.push_back({name, "", entry.busy ? "LOADING" : "UNAVAILABLE", entry.reason});
    }
  }
  return out;
}

bool ModelRepository::Ready() const {
  const MutexLock lock(mutex_);
  return std::ranges::all_of(entries_, [](const auto& row) {
    const Entry& entry = row.second;
    return !entry.wanted || !entry.versions.empty() || entry.evicted;
  });
}

std::string ModelRepository::InUse() const {
  std::vector<std::pair<int64_t, std::string>> rows;
  for (const auto& model : All()) {
    rows.emplace_back(-model->weight_bytes(),
                      StrCat(model->config().name, " version ", model->version()));
  }
  constexpr size_t kShown = 8;
  std::ranges::sort(rows);
  std::string out;
  for (size_t i = 0; i < std::min(rows.size(), kShown); ++i) {
    StrAppend(&out, i == 0 ? "" : ", ", rows[i].second, " ", -rows[i].first);
  }
  if (rows.size() > kShown) StrAppend(&out, " and ", rows.size() - kShown, " more");
  return out.empty() ? "nothing" : out;
}

}  // namespace telegrad
