// A unary method on a raw stream: one message in, the handler, one message out.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "google/protobuf/message_lite.h"
#include "grpcpp/grpcpp.h"
#include "server/service/router.h"

namespace telegrad {

// No request of a unary method is larger.
inline constexpr size_t kMaxUnaryBytes = 64 << 10;

class UnaryCall final : public RawStream {
 public:
  // Parses, calls and serializes.
  using Handler =
      std::function<absl::Status(const grpc::ByteBuffer& request, grpc::ByteBuffer* response)>;
  explicit UnaryCall(Handler handler) : handler_(std::move(handler)) { StartRead(&message_); }

  void OnReceived(bool ok) override;
  void End(absl::Status why) override;
  void OnOver() override { delete this; }

 private:
  const Handler handler_;
  grpc::ByteBuffer message_;
  std::atomic<bool> ending_ = false;  // a thread has begun to answer
};

absl::Status ParseMessage(const grpc::ByteBuffer& bytes, google::protobuf::MessageLite* message);
grpc::ByteBuffer SerializeMessage(const google::protobuf::MessageLite& message);

// The row of a method that is handled by Class::Method.
template <auto kMethod>
struct UnaryOf;
template <typename Class, typename Request, typename Response,
          absl::Status (Class::*kMethod)(const Caller&, const Request&, Response*)>
struct UnaryOf<kMethod> {
  static RawStream* Start(const Services& services, grpc::ServerContextBase*, Caller caller) {
    return new UnaryCall([service = std::get<Class*>(services), caller = std::move(caller)](
                             const grpc::ByteBuffer& in, grpc::ByteBuffer* out) {
      Request request;
      Response response;
      absl::Status status = ParseMessage(in, &request);
      if (status.ok()) status = (service->*kMethod)(caller, request, &response);
      if (status.ok()) *out = SerializeMessage(response);
      return status;
    });
  }
};
template <auto kMethod>
inline constexpr MethodHandler Unary = {&UnaryOf<kMethod>::Start, Counts::kRequest};
template <auto kMethod>
inline constexpr MethodHandler Uncounted = {&UnaryOf<kMethod>::Start, Counts::kNothing};

template <auto kMethod>
struct StreamOf;
template <typename Class, RawStream* (Class::*kMethod)(grpc::ServerContextBase*, Caller)>
struct StreamOf<kMethod> {
  static RawStream* Start(const Services& services, grpc::ServerContextBase* context,
                          Caller caller) {
    return (std::get<Class*>(services)->*kMethod)(context, std::move(caller));
  }
};
template <auto kMethod>
inline constexpr MethodHandler Stream = {&StreamOf<kMethod>::Start, Counts::kStream};

}  // namespace telegrad
