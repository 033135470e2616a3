// A server of the protocol that answers as a test says.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "devices/remote/remote_device.h"
#include "engine/base/strings.h"
#include "telegrad/v1/compute.grpc.pb.h"
#include "telegrad/v1/data.grpc.pb.h"
#include "telegrad/v1/session.grpc.pb.h"

namespace telegrad {

class FakeSession final : public v1::Session::Service {
 public:
  grpc::Status Hello(grpc::ServerContext*, const v1::HelloRequest*,
                     v1::HelloResponse* response) override {
    if (refuses) {
      return {grpc::StatusCode::FAILED_PRECONDITION, "no common version of the protocol"};
    }
    response->set_protocol(1);
    response->set_graph_form(2);
    response->set_chunk_bytes(1 << 20);
    response->set_binds_parts(binds_parts);
    if (hello) hello(response);
    return grpc::Status::OK;
  }
  grpc::Status ListDevices(grpc::ServerContext*, const v1::ListDevicesRequest*,
                           v1::ListDevicesResponse* response) override {
    if (const auto refusal = list_refusal.load(); refusal != grpc::StatusCode::OK) {
      return {refusal, "no list"};
    }
    v1::Device* device = response->add_devices();
    device->set_name("CPU:0");
    device->set_target("x86, 512-bit vectors");
    device->set_memory_limit(1 << 20);
    device->set_healthy(true);
    if (more) more(response);
    return grpc::Status::OK;
  }
  std::function<void(v1::HelloResponse*)> hello;
  std::function<void(v1::ListDevicesResponse*)> more;
  std::atomic<grpc::StatusCode> list_refusal = grpc::StatusCode::OK;
  bool refuses = false, binds_parts = true;
};

// Answers each operation as the test says.
class FakeCompute final : public v1::Compute::Service {
 public:
  using Stream = grpc::ServerReaderWriter<v1::ExecuteResponse, v1::ExecuteRequest>;
  std::function<void(const v1::ExecuteRequest&, Stream*)> answer;

  grpc::Status Execute(grpc::ServerContext*, Stream* stream) override {
    v1::ExecuteRequest request;
    while (stream->Read(&request)) {
      v1::ExecuteResponse response;
      response.set_op_id(request.op_id());
      if (request.has_open()) {
        response.mutable_open()->set_token("0123456789abcdef");
        response.mutable_open()->set_epoch(1);
        response.mutable_open()->set_lease_ms(60'000);
        response.mutable_open()->set_grace_ms(500);
        stream->Write(response);
      } else if (request.op_case() != v1::ExecuteRequest::OP_NOT_SET) {
        answer(request, stream);
      }
    }
    return grpc::Status::OK;
  }
};

class FakeData final : public v1::Data::Service {
 public:
  std::function<grpc::Status(const v1::AdmitBulkRequest&, v1::AdmitBulkResponse*)> admit;

  grpc::Status AdmitBulk(grpc::ServerContext*, const v1::AdmitBulkRequest* request,
                         v1::AdmitBulkResponse* response) override {
    return admit ? admit(*request, response)
                 : grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "no bulk sockets");
  }
};

class FakeServer {
 public:
  FakeServer() {
    compute.answer = [](const v1::ExecuteRequest&, FakeCompute::Stream*) {};
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&session);
    builder.RegisterService(&compute);
    builder.RegisterService(&data);
    server_ = builder.BuildAndStart();
  }
  ~FakeServer() { Shutdown(); }
  void Shutdown() { server_->Shutdown(std::chrono::system_clock::now()); }

  RemoteOptions Options(const std::string& name) const {
    RemoteOptions options{.name = name, .address = StrCat("127.0.0.1:", port_)};
    options.connect_time = absl::Seconds(10);  // however busy the machine is
    return options;
  }
  static void Answer(const v1::ExecuteRequest& request, FakeCompute::Stream* stream,
                     const std::function<void(v1::ExecuteResponse&)>& fill = nullptr) {
    v1::ExecuteResponse response;
    response.set_op_id(request.op_id());
    if (fill) fill(response);
    stream->Write(response);
  }

  FakeSession session;
  FakeCompute compute;
  FakeData data;

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace telegrad
