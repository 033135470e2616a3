// One Transfer stream: chunks of uploads in, chunks of downloads out. Takes the next message when
// the last one is dealt with; writes one message at a time, first what the client waits for, then
// the pulls, in order. Of a download one chunk is prepared at a time, so a client that does not
// read holds no memory but the buffer that it reads.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "grpcpp/grpcpp.h"
#include "server/service/open_calls.h"
#include "server/service/router.h"
#include "server/session/session_registry.h"
#include "telegrad/v1/data.pb.h"

namespace telegrad {

class DataCall final : public RawStream,
                       public TransferSink,
                       public std::enable_shared_from_this<DataCall> {
 public:
  // Owns itself until gRPC is done with it.
  static std::shared_ptr<DataCall> Create(SessionRegistry& registry, Metrics* metrics,
                                          Caller caller);
  // Begins to read; or ends with what is not OK.
  void Start(OpenCalls<DataCall>::Place place, const absl::Status& refused);

  void OnReadDone(bool ok) override;
  void OnSent(bool ok) override;
  void OnGone() override;
  void OnDone() override;

  void OnGranted(uint64_t bytes) override;
  void OnSessionEnded() override;

 private:
  DataCall(SessionRegistry& registry, Metrics* metrics, Caller caller)
      : registry_(registry), metrics_(metrics), caller_(std::move(caller)) {}

  absl::Status Accept();  // the message in incoming_
  absl::Status Attach(const v1::Attach& attach);
  absl::Status TakeChunk(const v1::Chunk& chunk, std::span<const std::span<const uint8_t>> data,
                         uint64_t data_bytes);
  absl::Status TakePull(const v1::Pull& pull);
  void Refuse(uint64_t transfer, uint64_t offset, uint32_t bytes, const absl::Status& why);
  void Fetch(const v1::Pull& pull);
  void Fetched(const v1::Pull& pull, absl::StatusOr<FetchedBytes> bytes);
  void End(absl::Status status);
  // Starts whatever can be started: the next read, write or fetch, the end.
  void Pump();
  bool NextMessage();

  SessionRegistry& registry_;
  Metrics* const metrics_;
  const Caller caller_;
  std::shared_ptr<DataCall> self_;    // until OnDone
  OpenCalls<DataCall>::Place place_;  // none if it is refused

  // Set by the first message, before anything else is started.
  std::shared_ptr<Session> session_;
  std::shared_ptr<CreditLine> credit_;
  uint64_t chunk_bytes_ = 0;

  // Of the reader, which is one at a time.
  grpc::ByteBuffer incoming_;
  v1::TransferRequest request_;

  std::mutex mutex_;
  std::deque<v1::TransferResponse> responses_;
  std::deque<v1::Pull> pulls_;
  std::optional<grpc::ByteBuffer> chunk_;  // of the pull at the front
  uint64_t granted_ = 0;                   // and not told yet
  grpc::ByteBuffer outgoing_;
  int starting_ = 0;
  bool fetching_ = false;
  bool reading_ = false;
  bool writing_ = false;
  bool input_ended_ = false;
  bool ended_ = false;  // nothing but the end is to be sent
  bool finished_ = false;
  absl::Status end_;
};

}  // namespace telegrad
