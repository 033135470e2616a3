// Requests of other tools: gRPC's health and reflection protocols, by their published
// definitions.
#include <signal.h>

#include <set>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "google/protobuf/descriptor_database.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "telegrad/v1/data.grpc.pb.h"
#include "tests/server/daemon_fixture.h"

namespace telegrad {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using grpc::reflection::v1alpha::ServerReflection;
using grpc::reflection::v1alpha::ServerReflectionRequest;
using grpc::reflection::v1alpha::ServerReflectionResponse;

TEST_F(DaemonTest, HealthKnowsItsServices) {
  const auto stub = Health::NewStub(connection_->channel());
  const auto check = [&](const std::string& service, HealthCheckResponse* response) {
    grpc::ClientContext context;
    HealthCheckRequest request;
    request.set_service(service);
    return stub->Check(&context, request, response).error_code();
  };
  for (const char* service : {"", "telegrad.v1.Compute", "telegrad.v1.Session"}) {
    HealthCheckResponse response;
    EXPECT_EQ(check(service, &response), grpc::StatusCode::OK);
    EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  }
  HealthCheckResponse response;
  EXPECT_EQ(check("telegrad.v1.None", &response), grpc::StatusCode::NOT_FOUND);
}

TEST_F(DaemonTest, HealthIsWatchedUntilTheEnd) {
  const auto stub = Health::NewStub(connection_->channel());
  HealthCheckRequest request;
  grpc::ClientContext context, left_context, unknown_context;
  const auto watch = stub->Watch(&context, request);
  HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVING);
  {  // Another watcher goes away by itself.
    const auto left = stub->Watch(&left_context, request);
    ASSERT_TRUE(left->Read(&response));
    left_context.TryCancel();
    EXPECT_EQ(left->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
  request.set_service("telegrad.v1.None");
  const auto unknown = stub->Watch(&unknown_context, request);
  ASSERT_TRUE(unknown->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::SERVICE_UNKNOWN);

  daemon_->Signal(SIGTERM);
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  EXPECT_FALSE(watch->Read(&response));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE)
      << "not cancelled when the time to drain is over: watchers do not hold the daemon up";
  EXPECT_EQ(daemon_->Wait().exit_code, 0);
}

// The first one waits for a call that never says anything, as long as it is told to.
TEST_F(DaemonTest, ASecondSignalEndsWhatTheFirstOneWaitsFor) {
  Start({"--drain-seconds", "3600"});
  grpc::ClientContext silent_context, context;
  const auto silent = v1::Data::NewStub(connection_->channel())->Transfer(&silent_context);
  const auto watch = Health::NewStub(connection_->channel())->Watch(&context, {});
  HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  daemon_->Signal(SIGTERM);
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), HealthCheckResponse::NOT_SERVING);
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->Wait().exit_code, 0);
  EXPECT_FALSE(silent->Finish().ok());
}

TEST_F(DaemonTest, ReflectionTellsTheWire) {
  const auto stub = ServerReflection::NewStub(connection_->channel());
  grpc::ClientContext context;
  const auto stream = stub->ServerReflectionInfo(&context);
  const auto ask = [&](const ServerReflectionRequest& request) {
    ServerReflectionResponse response;
    EXPECT_TRUE(stream->Write(request) && stream->Read(&response));
    return response;
  };
  ServerReflectionRequest list, symbol, file, missing, foreign, extension;
  list.set_list_services("*");
  std::set<std::string> services;
  const auto listed = ask(list);
  for (const auto& service : listed.list_services_response().service()) {
    services.insert(service.name());
  }
  EXPECT_TRUE(services.contains("telegrad.v1.Compute"));
  EXPECT_TRUE(services.contains("grpc.health.v1.Health"));

  // What it says of each service is complete: a pool that knows nothing else builds it.
  for (const std::string& service : services) {
    symbol.set_file_containing_symbol(service);
    google::protobuf::SimpleDescriptorDatabase database;
    const auto response = ask(symbol);
    for (const std::string& bytes : response.file_descriptor_response().file_descriptor_proto()) {
      google::protobuf::FileDescriptorProto proto;
      ASSERT_TRUE(proto.ParseFromString(bytes));
      EXPECT_TRUE(database.Add(proto));
    }
    google::protobuf::DescriptorPool pool(&database);
    EXPECT_NE(pool.FindServiceByName(service), nullptr) << service;
  }
  file.set_file_by_filename("telegrad/v1/data.proto");
  EXPECT_EQ(ask(file).file_descriptor_response().file_descriptor_proto_size(), 2);
  missing.set_file_containing_symbol("telegrad.v1.None");
  EXPECT_EQ(ask(missing).error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  foreign.set_file_containing_symbol("google.protobuf.FileDescriptorProto");
  EXPECT_EQ(ask(foreign).error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  extension.set_all_extension_numbers_of_type("telegrad.v1.Open");
  EXPECT_EQ(ask(extension).error_response().error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_TRUE(stream->WritesDone());
  EXPECT_TRUE(stream->Finish().ok());
}

}  // namespace
}  // namespace telegrad
