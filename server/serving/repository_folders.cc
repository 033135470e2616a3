// Of the repository, what the folders say: which models there are, where each one's files are, and
// its configuration.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_split.h"
#include "engine/base/status.h"
#include "server/serving/repository.h"

namespace telegrad {
namespace {

constexpr size_t kMostVersions = 1024;
constexpr int64_t kMaxLabelBytes = 16 << 20;

std::vector<std::string> LinesOf(std::string_view text) {
  std::vector<std::string> out = absl::StrSplit(ToAbsl(text), '\n');
  if (!out.empty() && out.back().empty()) out.pop_back();
  for (std::string& line : out) {
    if (line.ends_with('\r')) line.pop_back();
  }
  return out;
}

absl::Status CheckName(std::string_view name) {
  if (IsModelName(name)) return absl::OkStatus();
  return InvalidArgument("'", Clip(name, 256),
                         "' is not a model's name: 1 to 255 letters, digits, "
                         "'.', '_' and '-', the first no '.'");
}

}  // namespace

std::vector<std::string> ModelRepository::Names() const {
  std::set<std::string> names;
  for (const ModelRoot& root : options_.roots) {
    const auto folder = ModelFolder::Open(root.path);
    if (!folder.ok()) continue;
    const auto folders = folder->Folders();
    if (!folders.ok()) continue;
    for (const std::string& name : *folders) names.insert(FullName(root.space, name));
  }
  return {names.begin(), names.end()};
}

absl::StatusOr<ModelFolder> ModelRepository::FolderOf(const std::string& name) const {
  TG_RETURN_IF_ERROR(CheckName(name));
  std::optional<ModelFolder> found;
  for (const ModelRoot& root : options_.roots) {
    const std::string prefix = FullName(root.space, "");
    if (!name.starts_with(prefix) || name.size() == prefix.size()) continue;
    const auto opened = ModelFolder::Open(root.path);
    if (!opened.ok()) continue;
    auto folder = opened->Folder(name.substr(prefix.size()));
    if (absl::IsNotFound(folder.status())) continue;
    TG_RETURN_IF_ERROR(folder.status());
    if (found) {
      return FailedPrecondition("model '", name,
                                "' is in several folders of --models, expected one");
    }
    found = *std::move(folder);
  }
  if (!found) return NotFound("model '", name, "' is in no folder of --models");
  return *std::move(found);
}

std::shared_ptr<const GivenModel> ModelRepository::GivenOf(std::string_view name) const {
  const MutexLock lock(mutex_);
  const auto it = entries_.find(name);
  return it == entries_.end() ? nullptr : it->second.given;
}

absl::StatusOr<ModelRepository::Place> ModelRepository::PlaceOf(
    const std::string& name, std::shared_ptr<const GivenModel> given) const {
  if (given != nullptr && given->files != nullptr) {
    TG_RETURN_IF_ERROR(CheckName(name));
    return Place{ModelFolder(given->files), std::move(given)};
  }
  TG_ASSIGN_OR_RETURN(ModelFolder folder, FolderOf(name));
  return Place{std::move(folder), std::move(given)};
}

absl::StatusOr<ModelConfig> ModelRepository::ConfigIn(const Place& place) const {
  const auto named = [](absl::StatusOr<ModelConfig> config, std::string_view what) {
    if (config.ok()) return config;
    return absl::StatusOr<ModelConfig>(
        absl::Status(config.status().code(), StrCat(what, ": ", ToStd(config.status().message()))));
  };
  if (place.given != nullptr) return named(options_.parse_json(place.given->config), "config");
  if (!place.folder.Has(kModelConfigFile)) return ModelConfig{};
  TG_ASSIGN_OR_RETURN(const std::string text, place.folder.Read(kModelConfigFile, kMaxConfigBytes));
  return named(options_.parse(text), kModelConfigFile);
}

uint64_t ModelRepository::ConfigStampOf(const Place& place) {
  return place.given != nullptr ? place.given->stamp : place.folder.Stamp(kModelConfigFile);
}

uint64_t ModelRepository::StampOf(const Place& place, const std::vector<std::string>& parts) const {
  const ModelFolder& folder = place.folder;
  uint64_t stamp = ConfigStampOf(place);
  const auto versions = folder.Folders();
  for (const std::string& version : versions.ok() ? *versions : std::vector<std::string>()) {
    const int64_t number = ModelVersionOf(version);
    if (number == 0) continue;
    const auto inner = folder.Folder(version);
    if (!inner.ok()) continue;
    stamp = Mix64(stamp, static_cast<uint64_t>(number));
    for (const ModelFormatInfo& format : kModelFormats) {
      if (!format.file.empty()) stamp = Mix64(stamp, inner->Stamp(format.file));
    }
  }
  for (const std::string& part : parts) {
    const auto of = PlaceOf(part);
    stamp = Mix64(stamp, of.ok() ? StampOf(*of, {}) : 0);
  }
  return stamp;
}

absl::StatusOr<ModelRepository::Found> ModelRepository::Look(
    const std::string& name, std::shared_ptr<const GivenModel> given) const {
  TG_ASSIGN_OR_RETURN(Place place, PlaceOf(name, std::move(given)));
  Found out;
  out.config_stamp = ConfigStampOf(place);
  TG_ASSIGN_OR_RETURN(out.config, ConfigIn(place));
  const std::string_view space = SpaceOf(name);
  const std::string_view plain =
      space.empty() ? std::string_view(name) : std::string_view(name).substr(space.size() + 1);
  if (!out.config.name.empty() && out.config.name != name && out.config.name != plain) {
    return InvalidArgument(place.given != nullptr ? kConfigParameter : kModelConfigFile,
                           " names the model '", out.config.name, "', and ",
                           place.given != nullptr ? "the load" : "its folder", " is '", plain, "'");
  }
  out.config.name = name;
  ResolveSteps(name, &out.config.steps);
  TG_ASSIGN_OR_RETURN(const std::vector<std::string> folders, place.folder.Folders());
  std::vector<int64_t> available;
  for (const std::string& version : folders) {
    if (const int64_t number = ModelVersionOf(version); number > 0) available.push_back(number);
  }
  if (available.size() > kMostVersions) {
    return ResourceExhausted("the folder has ", available.size(), " versions; ", kMostVersions,
                             " are allowed");
  }
  out.versions = out.config.versions.Choose(available);
  if (out.versions.empty()) {
    return FailedPrecondition("of the ", available.size(),
                              " versions in its folder, none is to be served; expected folders "
                              "named 1, 2, ... with a model, and a version_policy that "
                              "chooses some");
  }
  out.parts = PartsOf(out.config);
  out.stamp = StampOf(place, out.parts);
  out.folder = std::make_shared<const ModelFolder>(std::move(place.folder));
  return out;
}

absl::StatusOr<std::vector<std::vector<std::string>>> ModelRepository::LabelsOf(
    const Found& found, const ModelConfig& config) const {
  std::vector<std::vector<std::string>> labels;
  for (const TensorSpec& output : config.outputs) {
    labels.emplace_back();
    if (output.labels.empty()) continue;
    TG_ASSIGN_OR_RETURN(const std::string text, found.folder->Read(output.labels, kMaxLabelBytes));
    labels.back() = LinesOf(text);
  }
  return labels;
}

}  // namespace telegrad
