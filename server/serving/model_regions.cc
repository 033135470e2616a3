// Of the model server, tensors in shared memory. Those in memory of the host are read before a
// request waits and written once it is answered. Those in memory of a device stay there where every
// device of the model can copy them from and to its own memory; else they pass through memory of
// the host.
#include <algorithm>
#include <utility>

#include "engine/base/status.h"
#include "server/serving/bytes_tensor.h"
#include "server/serving/device_copies.h"
#include "server/serving/model_server.h"

namespace telegrad {
namespace {

bool Reaches(const ServedModel& model, const Device& device) {
  return std::ranges::none_of(model.instances(), [&](const auto& instance) {
    return NeedsHost(*instance->maker.device, device);
  });
}

}  // namespace

absl::Status ModelServer::RegisterRegion(const std::string& tenant, SharedRegions::Region region) {
  if (device_regions_.Has(tenant, region.name)) return RegionExists(region.name);
  return regions_.Register(tenant, std::move(region));
}

absl::Status ModelServer::RegisterRegion(const std::string& tenant, DeviceRegions::Region region,
                                         std::string_view handle) {
  if (regions_.Has(tenant, region.name)) return RegionExists(region.name);
  return device_regions_.Register(tenant, std::move(region), handle);
}

// Inputs that are in shared memory are read as if they had come with the request, for which the
// tenant pays; of those in memory of a device it is found where they are.
absl::Status ModelServer::TakeRegions(Tenant& tenant, InferRequest* request) const {
  struct Read {
    std::shared_ptr<const void> owner;
    std::vector<Reservation> paid;
    std::vector<std::unique_ptr<std::string>> contents;
  };
  std::shared_ptr<Read> read;
  for (InferInput& input : request->inputs) {
    if (!input.region) continue;
    TG_ASSIGN_OR_RETURN(input.device, device_regions_.Find(tenant.name, *input.region));
    if (input.device) {
      input.bytes = input.region->bytes;
      continue;
    }
    if (read == nullptr) read = std::make_shared<Read>();
    TG_RETURN_IF_ERROR(regions_.Check(tenant.name, *input.region));
    TG_ASSIGN_OR_RETURN(auto paid, Reservation::Take(tenant.accounts.shared(Quota::kHostStaging),
                                                     input.region->bytes));
    read->paid.push_back(std::move(paid));
    std::string& content = *read->contents.emplace_back(std::make_unique<std::string>());
    TG_RETURN_IF_ERROR(regions_.Read(tenant.name, *input.region, &content));
    input.bytes = static_cast<int64_t>(content.size());
    input.pieces = {{reinterpret_cast<const uint8_t*>(content.data()), content.size()}};
  }
  for (WantedOutput& output : request->outputs) {
    if (!output.region) continue;
    TG_ASSIGN_OR_RETURN(output.device, device_regions_.Find(tenant.name, *output.region));
  }
  if (read == nullptr) return absl::OkStatus();
  read->owner = std::exchange(request->owner, nullptr);
  request->owner = std::move(read);
  return absl::OkStatus();
}

// The answer's outputs that are to be in shared memory, and are not yet, put there.
void ModelServer::GiveRegions(const std::shared_ptr<Tenant>& tenant,
                              const std::vector<WantedOutput>& wanted, InferResult result,
                              const InferDone& done) const {
  const auto copies = std::make_shared<DeviceCopies>(*maker_.env, tenant);
  for (size_t i = 0; i < wanted.size() && i < result.outputs.size(); ++i) {
    InferOutput& output = result.outputs[i];
    if (!wanted[i].region || output.region) continue;
    const RegionPart& region = *wanted[i].region;
    absl::Status written;
    if (output.bytes > region.bytes) return done(NoRoom(output.name, output.bytes, region));
    if (wanted[i].device) {
      written = copies->Store(*wanted[i].device, {static_cast<const uint8_t*>(output.data),
                                                  static_cast<size_t>(output.bytes)});
    } else {
      written = regions_.Write(tenant->name, region, output.data, output.bytes);
    }
    if (!written.ok()) {
      return done(absl::Status(written.code(),
                               StrCat("output '", output.name, "': ", ToStd(written.message()))));
    }
    output.region = region;
    output.region->bytes = output.bytes;
    output.bytes = 0;
    output.data = nullptr;
    output.owner = nullptr;
  }
  copies->Then([copies, done, result = std::move(result)](const absl::Status& status) mutable {
    if (!status.ok()) return done(status);
    done(std::move(result));
  });
}

// Brings to the host what the model's devices do not copy from there themselves.
void ModelServer::FetchInputs(const std::shared_ptr<Tenant>& tenant,
                              std::shared_ptr<ServedModel> model, InferRequest request,
                              InferDone done) const {
  const bool on_devices = model->TakesDeviceParts();
  const auto stays = [&](const DevicePart& part) {
    return on_devices && Reaches(*model, *part.device);
  };
  for (WantedOutput& output : request.outputs) {
    if (output.device && !stays(*output.device)) output.device.reset();  // see GiveRegions
  }
  struct Fetched {
    InferRequest request;
    InferDone done;
    std::shared_ptr<const void> owner;  // of the request before
  };
  std::shared_ptr<DeviceCopies> copies;
  for (InferInput& input : request.inputs) {
    if (!input.device || (stays(*input.device) && input.datatype != kBytesDatatype)) continue;
    if (copies == nullptr) copies = std::make_shared<DeviceCopies>(*maker_.env, tenant);
    const auto bytes = copies->Fetch(*input.device);
    if (!bytes.ok()) return done(bytes.status());
    input.pieces = {*bytes};
    input.device.reset();
  }
  if (copies == nullptr) return model->Infer(tenant, std::move(request), std::move(done));
  auto kept = std::make_shared<Fetched>();
  kept->owner = std::exchange(request.owner, copies);
  kept->request = std::move(request);
  kept->done = std::move(done);
  copies->Then([tenant, model = std::move(model), kept](const absl::Status& status) {
    if (!status.ok()) return kept->done(status);
    struct Owners {
      std::shared_ptr<const void> before, copies;
    };
    kept->request.owner = std::make_shared<Owners>(Owners{kept->owner, kept->request.owner});
    model->Infer(tenant, std::move(kept->request), std::move(kept->done));
  });
}

}  // namespace telegrad
