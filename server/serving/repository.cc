// Compares stamps of files with those that were loaded, and loads versions one by one. The previous
// version serves until the new one is ready.
#include "server/serving/repository.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_split.h"
#include "engine/base/status.h"
#include "engine/base/utf8.h"
#include "server/admin/log.h"

namespace telegrad {
namespace {

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

absl::StatusOr<std::shared_ptr<ServedModel>> ModelRepository::LoadVersion(const Found& found,
                                                                          int64_t version,
                                                                          LoadRoom* room) const {
  if (!found.config.steps.empty()) return LoadEnsemble(found, version, room);
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
                           std::move(labels), room);
}

// On a thread that compiles, one task of a model at a time.
absl::Status ModelRepository::LoadNow(const std::string& name,
                                      std::shared_ptr<const GivenModel> given, LoadRoom* room) {
  auto found = Look(name, given);
  bool wanted = false;  // before
  std::map<int64_t, std::shared_ptr<ServedModel>> before;
  std::map<int64_t, uint64_t> stamps;
  {
    const MutexLock lock(mutex_);
    Entry& entry = entries_[name];
    entry.on_disk |= given == nullptr || given->files == nullptr;
    wanted = std::exchange(entry.wanted, true);
    if (!found.ok()) {
      if (given != nullptr) entry.wanted = wanted;  // there is nothing that could come of it
      entry.reason = AsUtf8(ToStd(found.status().message()));
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
    auto model = LoadVersion(*found, version, room);
    if (room->freed != nullptr) {  // all of this is done again
      const MutexLock lock(mutex_);
      if (given != nullptr) entries_[name].wanted = wanted;
      return model.status();
    }
    if (model.ok()) {
      loaded[version] = *std::move(model);
      stamps[version] = stamp;
      changed = true;
      states[version] = {"READY", ""};
      Log(LogLevel::kInfo, "model_loaded", {{"name", name}, {"version", version}});
      continue;
    }
    const std::string reason = AsUtf8(ToStd(model.status().message()));
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
  if (failed.ok()) {
    entry.given.swap(given);
  } else if (given != nullptr && entry.versions.empty()) {
    entry.wanted = wanted;
  }
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
  std::shared_ptr<const GivenModel> given;
  const MutexLock lock(mutex_);
  Entry& entry = entries_[name];
  dropped.swap(entry.versions);
  given.swap(entry.given);
  for (auto& [version, state] : entry.states) state = {"UNAVAILABLE", "unloaded"};
  entry.stamps.clear();
  entry.reason = "unloaded";
  entry.wanted = false;
  entry.evicted = false;
}

// A model that came with a load alone leaves nothing behind, whatever its name was.
bool ModelRepository::IsNothing(const Entry& entry) {
  return !entry.on_disk && !entry.wanted && entry.versions.empty() && entry.waking.empty();
}

void ModelRepository::Enqueue(const std::string& name, Task task) {
  {
    const MutexLock lock(mutex_);
    Entry& entry = entries_[name];
    entry.waiting.push_back({.task = std::move(task)});
    if (std::exchange(entry.busy, true)) return;
  }
  Next(name)();
}

std::function<void()> ModelRepository::Next(const std::string& name) {
  return [this, name, compilers = maker_.env->compilers, share = maker_.owner->share] {
    compilers->Post([this, name] { RunTask(name); }, share);
  };
}

void ModelRepository::RunTask(const std::string& name) {
  Waiting waiting;
  {
    const MutexLock lock(mutex_);
    Entry& entry = entries_[name];
    waiting = std::move(entry.waiting.front());
    entry.waiting.pop_front();
  }
  const Tell tell = waiting.task(waiting.room.get());
  if (const auto freed = std::exchange(waiting.room->freed, nullptr)) {
    {
      const MutexLock lock(mutex_);
      entries_[name].waiting.push_front(std::move(waiting));
    }
    return freed->Then(Next(name));
  }
  waiting = {};
  bool more = false;
  {
    const MutexLock lock(mutex_);
    Entry& entry = entries_[name];
    more = !entry.waiting.empty();
    entry.busy = more;
    if (!more && IsNothing(entry)) entries_.erase(name);
  }
  if (more) Next(name)();
  tell();
}

void ModelRepository::Load(const std::string& name, std::shared_ptr<const GivenModel> given,
                           Done done) {
  const absl::Status there = PlaceOf(name, given).status();
  if (!there.ok()) return done(there);  // so that unknown names leave nothing behind
  if (given != nullptr)
    Log(LogLevel::kInfo, "model_given", {{"name", name}, {"bytes", given->bytes}});
  Enqueue(name, [this, name, given = std::move(given), done = std::move(done)](LoadRoom* room) {
    return [done, loaded = LoadNow(name, given, room)] { done(loaded); };
  });
}

void ModelRepository::Reload(const std::string& name, Done done) {
  const absl::Status there = PlaceOf(name).status();
  if (!there.ok()) return done(there);
  Enqueue(name, [this, name, done = std::move(done)](LoadRoom* room) {
    return [done, loaded = LoadNow(name, GivenOf(name), room)] { done(loaded); };
  });
}

void ModelRepository::Unload(const std::string& name, bool parts, Done done) {
  bool known;
  {
    const MutexLock lock(mutex_);
    known = entries_.contains(name);
  }
  if (!known) return done(UnknownModel(name, ""));
  Enqueue(name, [this, name, parts, done = std::move(done)](LoadRoom*) {
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
    const auto place = PlaceOf(name, nullptr);
    std::vector<std::string> parts;
    {
      const MutexLock lock(mutex_);
      if (const auto it = entries_.find(name); it != entries_.end()) parts = it->second.parts;
    }
    const uint64_t stamp = place.ok() ? StampOf(*place, parts) : 0;
    {
      const MutexLock lock(mutex_);
      // A new one has no entry before its load is under way: nobody sees it as one that failed.
      const auto it = entries_.find(name);
      const Entry* const entry = it == entries_.end() ? nullptr : &it->second;
      if (entry != nullptr &&
          (entry->busy || entry->given != nullptr || (entry->wanted && entry->stamp == stamp))) {
        continue;
      }
    }
    Load(name, [](const absl::Status&) {});
  }
  std::vector<std::string> gone;
  {
    const MutexLock lock(mutex_);
    for (const auto& [name, entry] : entries_) {
      if (entry.wanted && !entry.busy && entry.given == nullptr &&
          !std::ranges::binary_search(names, name)) {
        gone.push_back(name);
      }
    }
  }
  for (const std::string& name : gone) Unload(name, /*parts=*/false, [](const absl::Status&) {});
}

}  // namespace telegrad
