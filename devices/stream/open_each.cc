// A GPU that cannot be opened becomes a note for the log, and the others are offered.
#include "devices/stream/open_each.h"

#include <map>
#include <utility>

#include "devices/stream/generation.h"
#include "engine/base/mutex.h"
#include "engine/base/status.h"

namespace telegrad::stream {
namespace {

// The contexts at hand, by the number of their GPU.
class Group {
 public:
  void Add(int index, const std::shared_ptr<Context>& context) {
    const MutexLock lock(mutex_);
    contexts_[index] = context;
  }
  std::vector<std::shared_ptr<Context>> OthersThan(int index) const {
    std::vector<std::shared_ptr<Context>> out;
    const MutexLock lock(mutex_);
    for (const auto& [i, weak] : contexts_) {
      auto context = weak.lock();
      if (i != index && context != nullptr && context->health().ok()) out.push_back(context);
    }
    return out;
  }

 private:
  mutable Mutex mutex_;
  std::map<int, std::weak_ptr<Context>> contexts_ TG_GUARDED_BY(mutex_);
};

absl::StatusOr<std::unique_ptr<Generation>> OpenAgain(const Opening& opening, int index,
                                                      const std::string& name, uint64_t generation,
                                                      Group& group) {
  TG_ASSIGN_OR_RETURN(auto device, opening.open(index, name, generation));
  for (const auto& peer : group.OthersThan(index)) {
    ConnectPeers(opening.access, device->shared_context(), peer, [](const std::string&) {});
  }
  group.Add(index, device->shared_context());
  return std::make_unique<StreamGeneration>(std::move(device));
}

}  // namespace

std::vector<std::unique_ptr<Device>> OpenEach(const Opening& opening,
                                              std::vector<std::string>* notes) {
  std::vector<std::unique_ptr<Device>> out;
  const auto note = [&](std::string text) {
    if (notes != nullptr) notes->push_back(std::move(text));
  };
  const auto group = std::make_shared<Group>();
  std::vector<std::shared_ptr<Context>> opened;
  opening.only.Show(opening.count);
  for (int i = 0; i < opening.count; ++i) {
    if (!opening.only.Has(i)) continue;
    const std::string name = StrCat(opening.kind, ":", i);
    auto device = opening.open(i, name, opening.only.generation);
    if (!device.ok()) {
      note(StrCat(name, " (", opening.product(i),
                  ") is left out: ", ToStd(device.status().message())));
      continue;
    }
    opened.push_back((*device)->shared_context());
    group->Add(i, opened.back());
    out.push_back(MakeGenerationsDevice(
        std::make_unique<StreamGeneration>(*std::move(device)),
        [=](uint64_t number) { return OpenAgain(opening, i, name, number, *group); },
        opening.sensors == nullptr ? nullptr : opening.sensors(i)));
  }
  for (size_t i = 0; i < opened.size(); ++i) {
    for (size_t k = i + 1; k < opened.size(); ++k) {
      ConnectPeers(opening.access, opened[i], opened[k], note);
    }
  }
  return out;
}

}  // namespace telegrad::stream
