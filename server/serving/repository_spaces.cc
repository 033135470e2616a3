// Of the repository, namespaces: folders of models whose names are each namespace's own.
#include <algorithm>

#include "engine/base/status.h"
#include "server/serving/repository.h"

namespace telegrad {

absl::StatusOr<ModelRoot> ParseModelRoot(std::string_view text) {
  const size_t equals = text.find('=');
  const std::string_view space = text.substr(0, equals == text.npos ? 0 : equals);
  // A path with a '=' is one where what is before it is no name, as in ./a=b.
  if (space.find('/') != space.npos || equals == text.npos) return ModelRoot{"", std::string(text)};
  if (!IsModelName(space) || space.find('.') != space.npos) {
    return InvalidArgument("--models ", Clip(text, 256),
                           ": a namespace is letters, digits, '_' and '-'; write a folder whose "
                           "name has a '=' as ./NAME");
  }
  return ModelRoot{std::string(space), std::string(text.substr(equals + 1))};
}

std::string FullName(std::string_view space, std::string_view name) {
  return space.empty() ? std::string(name) : StrCat(space, ".", name);
}

std::string_view ModelRepository::SpaceOf(std::string_view name) const {
  const std::string_view space = name.substr(0, std::min(name.find('.'), name.size()));
  return std::ranges::binary_search(spaces_, space) && space.size() < name.size()
             ? space
             : std::string_view();
}

void ModelRepository::ResolveSteps(std::string_view name, std::vector<EnsembleStep>* steps) const {
  const std::string_view space = SpaceOf(name);
  if (space.empty()) return;
  for (EnsembleStep& step : *steps) {
    const std::string own = FullName(space, step.model);
    if (PlaceOf(own).ok()) step.model = own;
  }
}

bool ModelRepository::Knows(std::string_view name) const {
  const MutexLock lock(mutex_);
  return entries_.contains(name);
}

}  // namespace telegrad
