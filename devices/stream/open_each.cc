// A GPU that cannot be opened becomes a note for the log, and the others are offered.
#include "devices/stream/open_each.h"

#include <utility>

#include "engine/base/status.h"

namespace telegrad::stream {

std::vector<std::unique_ptr<Device>> OpenEach(const Opening& opening,
                                              std::vector<std::string>* notes) {
  std::vector<std::unique_ptr<Device>> out;
  const auto note = [&](std::string text) {
    if (notes != nullptr) notes->push_back(std::move(text));
  };
  std::vector<StreamDevice*> opened;
  for (int i = 0; i < opening.count; ++i) {
    const std::string name = StrCat(opening.kind, ":", i);
    auto device = opening.open(i, name);
    if (!device.ok()) {
      note(StrCat(name, " (", opening.product(i),
                  ") is left out: ", ToStd(device.status().message())));
      continue;
    }
    opened.push_back(device->get());
    out.push_back(*std::move(device));
  }
  for (StreamDevice* device : opened) {
    for (const StreamDevice* peer : opened) {
      if (peer == device) continue;
      if (const absl::Status direct = opening.befriend(device->context(), peer->context());
          !direct.ok()) {
        note(StrCat("copies between ", device->name(), " and ", peer->name(),
                    " go through the host: ", ToStd(direct.message())));
      }
    }
  }
  return out;
}

}  // namespace telegrad::stream
