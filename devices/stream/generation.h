// One generation of a GPU: its context with a stream device in it.
#pragma once

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "devices/api/generations_device.h"
#include "devices/stream/stream_device.h"

namespace telegrad::stream {

// GPUs whose contexts are of one driver reach each other's memory.
class StreamGeneration final : public Generation {
 public:
  explicit StreamGeneration(std::unique_ptr<StreamDevice> device)
      : context_(device->shared_context()), device_(std::move(device)) {}

  Device& device() override { return *device_; }
  PeerPlace peers() const override { return {context_->driver().peers(), context_->device()}; }
  void Interrupt() override;
  absl::Status Close() override;

 private:
  const std::shared_ptr<Context> context_;
  std::unique_ptr<StreamDevice> device_;
};

}  // namespace telegrad::stream
