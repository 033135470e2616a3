// The model repository: folders NAME/VERSION/ with a model below some roots, the models of which
// are loaded, loaded anew in place, and unloaded. A version takes another's place at once and
// whole; one that does not load leaves those before it serving, and its reason is kept.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/serving/ensemble.h"
#include "server/serving/given_model.h"
#include "server/serving/served_model.h"

namespace telegrad {

// A folder of models. Those of one with a namespace have it and a dot before their folders' names.
struct ModelRoot {
  std::string space, path;
};

std::string FullName(std::string_view space, std::string_view name);
// Of the text DIR or NAMESPACE=DIR.
absl::StatusOr<ModelRoot> ParseModelRoot(std::string_view text);

struct RepositoryOptions {
  std::vector<ModelRoot> roots;
  ParseModelConfig parse, parse_json;  // of config.pbtxt, and of one that a load brings along
};

// A row of the index. States are those of the protocol.
struct IndexRow {
  std::string name, version, state;
  std::string reason;  // in UTF-8, whatever the model's file contains
};

// The number of a version, 0 where the text is none.
int64_t ModelVersionOf(std::string_view text);
absl::Status UnknownModel(std::string_view name, std::string_view version);

// Thread-safe.
class ModelRepository {
 public:
  using Done = std::function<void(absl::Status)>;

  // What it points to outlives it; no task of the pool that compiles does.
  ModelRepository(RepositoryOptions options, const FormMaker* maker, ModelDevices* devices,
                  Alarm* alarm);

  // INVALID_ARGUMENT unless every root is a folder.
  absl::Status CheckRoots() const;
  const std::vector<std::string>& spaces() const { return spaces_; }
  // Whether it has been heard of since the daemon started.
  bool Knows(std::string_view name) const;
  // Names of all models in the roots, sorted.
  std::vector<std::string> Names() const;

  // Loads what the folder has now, versions that are the same are kept as they are. NOT_FOUND where
  // there is no such folder. What is asked of one model is done in order.
  void Load(const std::string& name, Done done) { Load(name, nullptr, std::move(done)); }
  // Loads what `given` has instead of the configuration in the folder, or of all of the folder,
  // which then need not be there. The model stays so, also while it is evicted, until another load
  // of it succeeds or it is unloaded. Null: the folder as it is.
  void Load(const std::string& name, std::shared_ptr<const GivenModel> given, Done done);
  // `parts`: of an ensemble, those of its models that no other ensemble has, too.
  void Unload(const std::string& name, bool parts, Done done);
  // Loads what is new or has changed since it was loaded, unloads what is gone. Models of which a
  // load brought something along are left as they are.
  void Follow();
  // Loads all, and is not ready before that.
  void LoadAll();

  // The version that serves requests for `version`, the newest for "". NOT_FOUND, UNAVAILABLE where
  // it is not being served, INVALID_ARGUMENT for a version that is no number.
  absl::StatusOr<std::shared_ptr<ServedModel>> Find(std::string_view name,
                                                    std::string_view version) const;
  // Those being served, ascending.
  std::vector<std::string> Versions(std::string_view name) const;
  std::vector<std::shared_ptr<ServedModel>> All() const;
  std::vector<IndexRow> Index() const;
  // Whether every model that is to be served is.
  bool Ready() const;
  // Unloads the model that was not used for the longest time, for the one of that name, until it is
  // asked for. What it returns ends once its memory is free, or a while later where answers that
  // are not taken hold it. Null where every other one has requests or is being loaded.
  std::shared_ptr<Ending> EvictOne(const std::string& for_name);
  bool IsEvicted(std::string_view name) const;
  // Loads it again, once for all who ask meanwhile.
  void Wake(const std::string& name, Done done);
  // For administrators alone: "NAME 123, ..." of those that hold the most.
  std::string InUse() const;

 private:
  struct VersionState {
    std::string state, reason;
  };
  // What it returns is called once the model is not busy any more, so that whoever is told that a
  // model is loaded may have it evicted.
  using Tell = std::function<void()>;
  // One that sets `room->freed` waits for that, in its turn, and is then called again with the same
  // `room`.
  using Task = std::function<Tell(LoadRoom* room)>;
  struct Waiting {
    Task task;
    std::shared_ptr<LoadRoom> room = std::make_shared<LoadRoom>();
  };
  struct Entry {
    std::map<int64_t, std::shared_ptr<ServedModel>> versions;  // served
    std::map<int64_t, VersionState> states;
    std::string reason;   // of the model as a whole, where it is not served
    bool wanted = false;  // is to be served
    bool busy = false;
    bool evicted = false;      // its memory was needed; see EvictOne
    std::vector<Done> waking;  // who waits for it to be loaded again
    std::deque<Waiting> waiting;
    uint64_t stamp = 0;
    std::map<int64_t, uint64_t> stamps;       // of what each version was loaded from
    std::vector<std::string> parts;           // of an ensemble: all models that it is made of
    std::shared_ptr<const GivenModel> given;  // by the last load that succeeded; null: nothing
    bool on_disk = false;                     // it was once loaded from a folder of --models
  };
  // Where a model's files are: in its folder below a root, or among those that a load brought
  // along.
  struct Place {
    ModelFolder folder;
    std::shared_ptr<const GivenModel> given;  // whose configuration it is; null: the folder's
  };
  // What a folder says.
  struct Found {
    std::shared_ptr<const ModelFolder> folder;
    ModelConfig config;
    std::vector<int64_t> versions;  // to be served
    uint64_t config_stamp = 0;
    uint64_t stamp = 0;
    std::vector<std::string> parts;
  };

  void Enqueue(const std::string& name, Task task);
  // A call posts the first task of a model, and outlives the repository.
  std::function<void()> Next(const std::string& name);
  void RunTask(const std::string& name);
  absl::Status LoadNow(const std::string& name, std::shared_ptr<const GivenModel> given,
                       LoadRoom* room);
  // Loads it again as it was loaded, with what was given then.
  void Reload(const std::string& name, Done done);
  void UnloadNow(const std::string& name);
  static bool IsNothing(const Entry& entry);
  // The part of a name before its dot that is a namespace; empty for none.
  std::string_view SpaceOf(std::string_view name) const;
  // The models that the steps of the ensemble `name` mean: of its own namespace before all others.
  void ResolveSteps(std::string_view name, std::vector<EnsembleStep>* steps) const;
  absl::StatusOr<ModelFolder> FolderOf(const std::string& name) const;
  std::shared_ptr<const GivenModel> GivenOf(std::string_view name) const;
  absl::StatusOr<Place> PlaceOf(const std::string& name,
                                std::shared_ptr<const GivenModel> given) const;
  absl::StatusOr<Place> PlaceOf(const std::string& name) const {
    return PlaceOf(name, GivenOf(name));
  }
  absl::StatusOr<ModelConfig> ConfigIn(const Place& place) const;
  absl::StatusOr<Found> Look(const std::string& name,
                             std::shared_ptr<const GivenModel> given) const;
  absl::StatusOr<std::shared_ptr<ServedModel>> LoadVersion(const Found& found, int64_t version,
                                                           LoadRoom* room) const;
  absl::StatusOr<std::shared_ptr<ServedModel>> LoadEnsemble(const Found& found, int64_t version,
                                                            LoadRoom* room) const;
  absl::StatusOr<std::shared_ptr<ServedModel>> LoadJoined(const Found& found, int64_t version,
                                                          const Ensemble& ensemble,
                                                          LoadRoom* room) const;
  absl::StatusOr<std::shared_ptr<ServedModel>> LoadSteps(const Found& found, int64_t version,
                                                         Ensemble ensemble, LoadRoom* room) const;
  absl::StatusOr<std::vector<std::vector<std::string>>> LabelsOf(const Found& found,
                                                                 const ModelConfig& config) const;
  absl::StatusOr<EnsemblePart> PartOf(const std::string& name, int64_t version) const;
  std::vector<std::string> PartsOf(const ModelConfig& config) const;
  static uint64_t ConfigStampOf(const Place& place);
  uint64_t StampOf(const Place& place, const std::vector<std::string>& parts) const;
  uint64_t VersionStamp(const Found& found, int64_t version) const;
  void LoadEnsemblesOf(const std::string& part);
  void UnloadPartsOf(const std::string& ensemble);

  const RepositoryOptions options_;
  const std::vector<std::string> spaces_;
  const FormMaker& maker_;  // for what all devices have in common
  ModelDevices& devices_;
  Alarm& alarm_;
  mutable Mutex mutex_;
  std::map<std::string, Entry, std::less<>> entries_ TG_GUARDED_BY(mutex_);
};

}  // namespace telegrad
