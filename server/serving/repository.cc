// Scans the folders, compares stamps of files with those that were loaded, and loads versions
// one by one. The previous version serves until the new one is ready.
#include "server/serving/repository.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"
#include "server/admin/log.h"

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

std::vector<std::string> SpacesOf(const std::vector<ModelRoot>& roots) {
  std::set<std::string> out;
  for (const ModelRoot& root : roots) {
    if (!root.space.empty()) out.insert(root.space);
  }
  return {out.begin(), out.end()};
}

}  // namespace

ModelRepository::ModelRepository(RepositoryOptions options, const FormMaker* maker,
                                 ModelDevices* devices, Alarm* alarm)
    : options_(std::move(options)),
      spaces_(SpacesOf(options_.roots)),
      maker_(*maker),
      devices_(*devices),
      alarm_(*alarm) {}

absl::Status ModelRepository::CheckRoots() const {
  for (const ModelRoot& root : options_.roots) {
    const absl::Status status = ModelFolder::Open(root.path).status();
    if (!status.ok()) {
      return InvalidArgument("--models ", root.path, ": ", ToStd(status.message()));
    }
  }
  return absl::OkStatus();
}

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
  if (!IsModelName(name)) {
    return InvalidArgument("'", Clip(name, 256),
                           "' is not a model's name: 1 to 255 letters, digits, "
                           "'.', '_' and '-', the first no '.'");
  }
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

uint64_t ModelRepository::StampOf(const ModelFolder& folder,
                                  const std::vector<std::string>& parts) const {
  uint64_t stamp = folder.Stamp(kModelConfigFile);
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
    const auto of = FolderOf(part);
    stamp = Mix64(stamp, of.ok() ? StampOf(*of, {}) : 0);
  }
  return stamp;
}

absl::StatusOr<ModelRepository::Found> ModelRepository::Look(const std::string& name) const {
  TG_ASSIGN_OR_RETURN(ModelFolder folder, FolderOf(name));
  Found out;
  out.config_stamp = folder.Stamp(kModelConfigFile);
  if (folder.Has(kModelConfigFile)) {
    TG_ASSIGN_OR_RETURN(const std::string text, folder.Read(kModelConfigFile, kMaxConfigBytes));
    auto config = options_.parse(text);
    if (!config.ok()) {
      return absl::Status(config.status().code(),
                          StrCat("config.pbtxt: ", ToStd(config.status().message())));
    }
    out.config = *std::move(config);
  }
  const std::string_view space = SpaceOf(name);
  const std::string_view plain =
      space.empty() ? std::string_view(name) : std::string_view(name).substr(space.size() + 1);
  if (!out.config.name.empty() && out.config.name != name && out.config.name != plain) {
    return InvalidArgument("config.pbtxt names the model '", out.config.name,
                           "', and its folder is '", plain, "'");
  }
  out.config.name = name;
  ResolveSteps(name, &out.config.steps);
  TG_ASSIGN_OR_RETURN(const std::vector<std::string> folders, folder.Folders());
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
  out.stamp = StampOf(folder, out.parts);
  out.folder = std::make_shared<const ModelFolder>(std::move(folder));
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

absl::StatusOr<std::shared_ptr<ServedModel>> ModelRepository::LoadVersion(const Found& found,
                                                                          int64_t version) const {
  if (!found.config.steps.empty()) return LoadEnsemble(found, version);
  TG_ASSIGN_OR_RETURN(ModelFolder folder, found.folder->Folder(StrCat(version)));
  ModelConfig config = found.config;
  TG_ASSIGN_OR_RETURN(config.file, ModelFileIn(folder, config.file));
  auto files = std::make_shared<ModelSource>(std::make_shared<const ModelFolder>(std::move(folder)),
                                             config.file);
  {
    TG_ASSIGN_OR_RETURN(const auto content, files->Read());
    TG_RETURN_IF_ERROR(CompleteConfig(content->file, &config));
  }
  auto source = std::make_shared<FileFormSource>(std::move(files), maker_.read);
  TG_ASSIGN_OR_RETURN(auto labels, LabelsOf(found, config));
  TG_ASSIGN_OR_RETURN(const auto devices, devices_.Choose(&config));
  return ServedModel::Load(devices, &alarm_, std::move(config), StrCat(version), std::move(source),
                           std::move(labels));
}

// On a thread that compiles, one task of a model at a time.
absl::Status ModelRepository::LoadNow(const std::string& name) {
  auto found = Look(name);
  std::map<int64_t, std::shared_ptr<ServedModel>> before;
  std::map<int64_t, uint64_t> stamps;
  {
    const MutexLock lock(mutex_);
    Entry& entry = entries_[name];
    entry.wanted = true;
    if (!found.ok()) {
      entry.reason = std::string(found.status().message());
      for (auto& [version, state] : entry.states) {
        if (state.state == "READY") state.reason = StrCat("not loaded anew: ", entry.reason);
      }
      return found.status();
    }
    entry.stamp = found->stamp;
    entry.parts = found->parts;
    before = entry.versions;
    stamps = entry.stamps;
    for (const int64_t version : found->versions) {
      if (!before.contains(version)) entry.states[version] = {"LOADING", ""};
    }
  }
  absl::Status failed;
  bool changed = false;
  std::map<int64_t, std::shared_ptr<ServedModel>> loaded;
  std::map<int64_t, VersionState> states;
  for (const int64_t version : found->versions) {
    const uint64_t stamp = VersionStamp(*found, version);
    const auto known = before.find(version);
    if (known != before.end() && stamps[version] == stamp) {
      loaded.insert(*known);
      states[version] = {"READY", ""};
      continue;
    }
    auto model = LoadVersion(*found, version);
    if (model.ok()) {
      loaded[version] = *std::move(model);
      stamps[version] = stamp;
      changed = true;
      states[version] = {"READY", ""};
      Log(LogLevel::kInfo, "model_loaded", {{"name", name}, {"version", version}});
      continue;
    }
    const std::string reason(model.status().message());
    Log(LogLevel::kError, "model_failed",
        {{"name", name}, {"version", version}, {"reason", reason}, {"in_use", InUse()}});
    if (failed.ok()) {
      // Which models there are is for whoever may load: a reason is told to their tenants.
      const bool full = absl::IsResourceExhausted(model.status());
      failed = absl::Status(model.status().code(),
                            StrCat("model '", name, "' version ", version, ": ", reason,
                                   full ? StrCat("; in use: ", InUse()) : ""));
    }
    if (known != before.end()) {
      loaded.insert(*known);  // goes on serving what it was
      states[version] = {"READY", StrCat("a newer file does not load: ", reason)};
    } else {
      states[version] = {"UNAVAILABLE", reason};
    }
  }
  // Where something failed, nothing that serves goes.
  if (!failed.ok()) loaded.insert(before.begin(), before.end());
  for (const auto& [version, model] : loaded) {
    if (!states.contains(version)) states[version] = {"READY", ""};
  }
  // Once this one is in its place.
  const absl::Cleanup others = [&] {
    if (changed) LoadEnsemblesOf(name);
  };
  const MutexLock lock(mutex_);
  Entry& entry = entries_[name];
  entry.evicted = false;
  entry.versions.swap(loaded);  // what is replaced goes when the lock is given back
  entry.states = std::move(states);
  entry.stamps = std::move(stamps);
  std::erase_if(entry.stamps, [&](const auto& s) { return !entry.versions.contains(s.first); });
  entry.reason = "";
  for (const auto& [version, state] : entry.states) {
    if (entry.versions.empty() && entry.reason.empty()) entry.reason = state.reason;
  }
  before.clear();
  return failed;
}

void ModelRepository::UnloadNow(const std::string& name) {
  std::map<int64_t, std::shared_ptr<ServedModel>> dropped;  // without the lock
  const MutexLock lock(mutex_);
  Entry& entry = entries_[name];
  dropped.swap(entry.versions);
  for (auto& [version, state] : entry.states) state = {"UNAVAILABLE", "unloaded"};
  entry.stamps.clear();
  entry.reason = "unloaded";
  entry.wanted = false;
  entry.evicted = false;
}

void ModelRepository::Enqueue(const std::string& name, Task task) {
  {
    const MutexLock lock(mutex_);
    Entry& entry = entries_[name];
    entry.waiting.push_back(std::move(task));
    if (std::exchange(entry.busy, true)) return;
  }
  Next(name);
}

void ModelRepository::Next(const std::string& name) {
  maker_.env->compilers->Post(
      [this, name] {
        Task task;
        {
          const MutexLock lock(mutex_);
          Entry& entry = entries_[name];
          task = std::move(entry.waiting.front());
          entry.waiting.pop_front();
        }
        const std::function<void()> tell = task();
        bool more = false;
        {
          const MutexLock lock(mutex_);
          Entry& entry = entries_[name];
          more = !entry.waiting.empty();
          entry.busy = more;
        }
        if (more) Next(name);
        tell();
      },
      maker_.owner->share);
}

void ModelRepository::Load(const std::string& name, Done done) {
  const absl::Status there = FolderOf(name).status();
  if (!there.ok()) return done(there);  // so that unknown names leave nothing behind
  Enqueue(name, [this, name, done = std::move(done)] {
    return [done, loaded = LoadNow(name)] { done(loaded); };
  });
}

void ModelRepository::Unload(const std::string& name, bool parts, Done done) {
  {
    const MutexLock lock(mutex_);
    if (!entries_.contains(name)) return done(UnknownModel(name, ""));
  }
  Enqueue(name, [this, name, parts, done = std::move(done)] {
    UnloadNow(name);
    Log(LogLevel::kInfo, "model_unloaded", {{"name", name}});
    if (parts) UnloadPartsOf(name);
    return [done] { done(absl::OkStatus()); };
  });
}

void ModelRepository::LoadAll() {
  for (const std::string& name : Names()) {
    {
      const MutexLock lock(mutex_);
      entries_[name].wanted = true;
    }
    Load(name, [](const absl::Status&) {});
  }
}

void ModelRepository::Follow() {
  const std::vector<std::string> names = Names();
  for (const std::string& name : names) {
    const auto folder = FolderOf(name);
    std::vector<std::string> parts;
    {
      const MutexLock lock(mutex_);
      if (const auto it = entries_.find(name); it != entries_.end()) parts = it->second.parts;
    }
    const uint64_t stamp = folder.ok() ? StampOf(*folder, parts) : 0;
    {
      const MutexLock lock(mutex_);
      // A new one has no entry before its load is under way: nobody sees it as one that failed.
      const auto it = entries_.find(name);
      const Entry* const entry = it == entries_.end() ? nullptr : &it->second;
      if (entry != nullptr && (entry->busy || (entry->wanted && entry->stamp == stamp))) continue;
    }
    Load(name, [](const absl::Status&) {});
  }
  std::vector<std::string> gone;
  {
    const MutexLock lock(mutex_);
    for (const auto& [name, entry] : entries_) {
      if (entry.wanted && !entry.busy && !std::ranges::binary_search(names, name)) {
        gone.push_back(name);
      }
    }
  }
  for (const std::string& name : gone) Unload(name, /*parts=*/false, [](const absl::Status&) {});
}

}  // namespace telegrad
