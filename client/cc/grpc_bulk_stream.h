// A Transfer stream on a gRPC connection of its own.
#pragma once

#include <memory>
#include <optional>

#include "client/cc/bulk_stream.h"
#include "grpcpp/grpcpp.h"
#include "grpcpp/support/client_callback.h"

namespace telegrad {

class GrpcBulkStream final : public BulkStream,
                             public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  GrpcBulkStream(BulkTransfers* owner, std::shared_ptr<grpc::Channel> channel,
                 const SessionTicket& ticket);

  void Kick() override;
  void Cancel() override { context_->TryCancel(); }
  void Drain() override;
  bool optional() const override { return false; }

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

 private:
  void SetMessage(const v1::TransferRequest& request, std::span<const std::byte> data);
  absl::Status Receive();

  std::shared_ptr<grpc::Channel> channel_;
  std::optional<grpc::ClientContext> context_{std::in_place};  // until it is drained
  grpc::ByteBuffer incoming_, outgoing_;

  int starting_ TG_GUARDED_BY(owner_->mutex_) = 0;
  bool writing_ TG_GUARDED_BY(owner_->mutex_) = true;  // the first message
  bool ended_ TG_GUARDED_BY(owner_->mutex_) = false;
  bool released_ TG_GUARDED_BY(owner_->mutex_) = false;
};

}  // namespace telegrad
