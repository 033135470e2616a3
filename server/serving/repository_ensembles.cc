// Of the repository, what ensembles need of other models. An ensemble reads the files of its parts
// itself, those that a load of a part brought along included: it does not matter in which order
// they are loaded, nor whether a part is served under its own name. Weights are by content, so that
// both have the same ones.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "engine/base/status.h"
#include "server/serving/repository.h"
#include "server/serving/step_run.h"

namespace telegrad {

absl::StatusOr<EnsemblePart> ModelRepository::PartOf(const std::string& name,
                                                     int64_t version) const {
  TG_ASSIGN_OR_RETURN(const Found found, Look(name, GivenOf(name)));
  EnsemblePart out{.config = found.config};
  if (!found.config.steps.empty()) return out;
  const int64_t number = version < 0 ? found.versions.back() : version;
  if (std::ranges::find(found.versions, number) == found.versions.end()) {
    return NotFound("version ", number, " of model '", name, "' is not to be served");
  }
  TG_ASSIGN_OR_RETURN(ModelFolder folder, found.folder->Folder(StrCat(number)));
  TG_ASSIGN_OR_RETURN(out.config.file, ModelFileIn(folder, out.config.file));
  auto files = std::make_shared<ModelSource>(std::make_shared<const ModelFolder>(std::move(folder)),
                                             out.config.file);
  TG_ASSIGN_OR_RETURN(const auto content, files->Read());
  TG_RETURN_IF_ERROR(CompleteConfig(content->file, &out.config));
  out.source = std::make_shared<FileFormSource>(std::move(files), maker_.read);
  out.version = number;
  return out;
}

absl::StatusOr<std::shared_ptr<ServedModel>> ModelRepository::LoadEnsemble(const Found& found,
                                                                           int64_t version,
                                                                           LoadRoom* room) const {
  TG_ASSIGN_OR_RETURN(const Ensemble ensemble,
                      ResolveEnsemble(found.config, [this](const std::string& name, int64_t part) {
                        return PartOf(name, part);
                      }));
  const bool graphs = std::ranges::none_of(
      ensemble.steps, [](const Ensemble::Step& step) { return step.part.config.by_value; });
  if (graphs) {
    auto joined = LoadJoined(found, version, ensemble, room);
    if (!absl::IsUnimplemented(joined.status())) return joined;
  }
  return LoadSteps(found, version, ensemble, room);
}

absl::StatusOr<std::shared_ptr<ServedModel>> ModelRepository::LoadJoined(const Found& found,
                                                                         int64_t version,
                                                                         const Ensemble& ensemble,
                                                                         LoadRoom* room) const {
  ModelConfig config = found.config;
  TG_RETURN_IF_ERROR(CompleteEnsemble(ensemble, &config));
  TG_ASSIGN_OR_RETURN(auto labels, LabelsOf(found, config));
  auto source = SourceOf(ensemble, config);
  TG_ASSIGN_OR_RETURN(const auto devices, devices_.Choose(&config));
  return ServedModel::Load(devices, &alarm_, std::move(config), StrCat(version), std::move(source),
                           std::move(labels), room);
}

// Its steps are models of their own, which nobody finds by name.
absl::StatusOr<std::shared_ptr<ServedModel>> ModelRepository::LoadSteps(const Found& found,
                                                                        int64_t version,
                                                                        Ensemble ensemble,
                                                                        LoadRoom* room) const {
  ModelConfig config = found.config;
  TG_ASSIGN_OR_RETURN(const auto devices, devices_.Choose(&config));
  std::map<std::pair<std::string, int64_t>, std::shared_ptr<ServedModel>> loaded;
  StepModels steps;
  for (Ensemble::Step& step : ensemble.steps) {
    std::shared_ptr<ServedModel>& model = loaded[{step.part.config.name, step.part.version}];
    if (model == nullptr) {
      ModelConfig part = step.part.config;
      part.cached = false;  // the ensemble's answers are, where it says so
      std::vector<std::vector<std::string>> labels(part.outputs.size());
      auto made = ServedModel::Load(devices, &alarm_, std::move(part), StrCat(step.part.version),
                                    step.part.source, std::move(labels), room);
      if (!made.ok()) {
        return absl::Status(made.status().code(),
                            StrCat(step.where, ": ", ToStd(made.status().message())));
      }
      model = *std::move(made);
    }
    step.part.config = model->config();  // what loading has told of its outputs, too
    steps.models.push_back(model);
  }
  TG_RETURN_IF_ERROR(CompleteEnsemble(ensemble, &config));
  TG_ASSIGN_OR_RETURN(auto labels, LabelsOf(found, config));
  steps.ensemble = std::move(ensemble);
  return ServedModel::OfSteps(devices, &alarm_, std::move(config), StrCat(version),
                              std::move(steps), std::move(labels));
}

// All models that it is made of, as far as their configurations can be read: what is wrong with
// them, loading tells.
std::vector<std::string> ModelRepository::PartsOf(const ModelConfig& config) const {
  std::vector<std::string> out;
  std::set<std::string> seen = {config.name};
  std::vector<EnsembleStep> steps = config.steps;
  while (!steps.empty() && out.size() < kMostEnsembleSteps) {
    const std::string name = steps.back().model;
    steps.pop_back();
    if (!seen.insert(name).second) continue;
    out.push_back(name);
    const auto place = PlaceOf(name);
    auto part = place.ok() ? ConfigIn(*place) : place.status();
    if (part.ok()) ResolveSteps(name, &part->steps);
    if (part.ok()) steps.insert(steps.end(), part->steps.begin(), part->steps.end());
  }
  std::ranges::sort(out);
  return out;
}

uint64_t ModelRepository::VersionStamp(const Found& found, int64_t version) const {
  if (!found.parts.empty()) return found.stamp;
  const auto folder = found.folder->Folder(StrCat(version));
  const auto file = folder.ok() ? ModelFileIn(*folder, found.config.file) : folder.status();
  return Mix64(found.config_stamp, file.ok() ? folder->Stamp(*file) : 0);
}

void ModelRepository::LoadEnsemblesOf(const std::string& part) {
  std::vector<std::string> names;
  {
    const MutexLock lock(mutex_);
    for (const auto& [name, entry] : entries_) {
      if (entry.wanted && std::ranges::binary_search(entry.parts, part)) names.push_back(name);
    }
  }
  for (const std::string& name : names) Reload(name, [](const absl::Status&) {});
}

void ModelRepository::UnloadPartsOf(const std::string& ensemble) {
  std::vector<std::string> parts;
  {
    const MutexLock lock(mutex_);
    for (const std::string& part : entries_[ensemble].parts) {
      bool alone = entries_.contains(part);
      for (const auto& [name, other] : entries_) {
        alone &= !other.wanted || !std::ranges::binary_search(other.parts, part);
      }
      if (alone) parts.push_back(part);
    }
  }
  for (const std::string& part : parts) Unload(part, /*parts=*/false, [](const absl::Status&) {});
}

}  // namespace telegrad
