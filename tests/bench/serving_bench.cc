// Requests for identity models, and the server that they are compared with: one that answers the
// same messages with what they have, and does nothing else.
//
// Usage: serving_bench models DIR                            writes the models identity_BYTES
//        serving_bench echo                                  serves; prints `listening on
//        HOST:PORT` serving_bench ADDRESS latency BYTES COUNT CLIENTS   prints the median, in
//        microseconds serving_bench ADDRESS rate BYTES COUNT CLIENTS      prints requests a second
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "engine/frontend/onnx/test_model.h"
#include "grpcpp/grpcpp.h"
#include "inference/grpc_service.grpc.pb.h"
#include "proto/transport.h"
#include "tests/bench/timing.h"

namespace telegrad::bench {
namespace {

constexpr int64_t kModelBytes[] = {4, 16 << 20};

std::string ModelName(int64_t bytes) { return "identity_" + std::to_string(bytes); }

int WriteModels(const std::filesystem::path& folder) {
  for (const int64_t bytes : kModelBytes) {
    const Shape shape = {bytes / 4};
    const auto path = folder / ModelName(bytes) / "1";
    std::filesystem::create_directories(path);
    std::ofstream(path / "model.onnx", std::ios::binary) << onnx::test::ModelWriter()
                                                                .Input("x", DType::kFloat32, shape)
                                                                .Output("y", DType::kFloat32, shape)
                                                                .Node("Identity", {"x"}, {"y"})
                                                                .File(13);
  }
  return 0;
}

class EchoModels final : public inference::GRPCInferenceService::CallbackService {
  grpc::ServerUnaryReactor* ModelInfer(grpc::CallbackServerContext* context,
                                       const inference::ModelInferRequest* request,
                                       inference::ModelInferResponse* response) override {
    response->set_model_name(request->model_name());
    auto* output = response->add_outputs();
    output->set_name("y");
    output->set_datatype(request->inputs(0).datatype());
    *output->mutable_shape() = request->inputs(0).shape();
    *response->mutable_raw_output_contents() = request->raw_input_contents();
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerUnaryReactor* ModelReady(grpc::CallbackServerContext* context,
                                       const inference::ModelReadyRequest*,
                                       inference::ModelReadyResponse* response) override {
    response->set_ready(true);
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

int Serve() {
  EchoModels service;
  grpc::ServerBuilder builder;
  int port = 0;
  for (const ChannelArgument& row : kChannelArguments) {
    builder.AddChannelArgument(row.name, row.value);
  }
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  std::printf("listening on 127.0.0.1:%d\n", port);
  std::fflush(stdout);
  server->Wait();
  return 0;
}

// Requests of one client until none is left; how long each took, in seconds.
std::vector<double> Ask(const std::string& address, int64_t bytes, std::atomic<int64_t>* left) {
  grpc::ChannelArguments arguments;
  for (const ChannelArgument& row : kChannelArguments) arguments.SetInt(row.name, row.value);
  arguments.SetInt("grpc.use_local_subchannel_pool", 1);  // a connection of its own
  const auto stub = inference::GRPCInferenceService::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  inference::ModelInferRequest request;
  request.set_model_name(ModelName(bytes));
  auto* input = request.add_inputs();
  input->set_name("x");
  input->set_datatype("FP32");
  input->add_shape(bytes / 4);
  request.add_raw_input_contents(std::string(static_cast<size_t>(bytes), '\1'));
  for (bool ready = false; !ready;) {  // models are loaded in the background
    grpc::ClientContext context;
    inference::ModelReadyRequest name;
    inference::ModelReadyResponse response;
    name.set_name(request.model_name());
    const grpc::Status status = stub->ModelReady(&context, name, &response);
    if (!status.ok()) std::exit(1);
    ready = response.ready();
  }
  std::vector<double> times;
  while (left->fetch_sub(1) > 0) {
    grpc::ClientContext context;
    inference::ModelInferResponse response;
    const double begin = Seconds();
    const grpc::Status status = stub->ModelInfer(&context, request, &response);
    times.push_back(Seconds() - begin);
    if (!status.ok() || response.raw_output_contents(0) != request.raw_input_contents(0)) {
      std::fprintf(stderr, "serving_bench: %s\n", status.error_message().c_str());
      std::exit(1);
    }
  }
  return times;
}

int Measure(const std::string& address, const std::string& what, int64_t bytes, int64_t count,
            int clients) {
  std::atomic<int64_t> warm = clients * 8;
  Ask(address, bytes, &warm);
  std::atomic<int64_t> left = count;
  std::vector<std::vector<double>> times(static_cast<size_t>(clients));
  std::vector<std::thread> threads;
  const double begin = Seconds();
  for (auto& of_one : times) threads.emplace_back([&] { of_one = Ask(address, bytes, &left); });
  for (std::thread& thread : threads) thread.join();
  const double seconds = Seconds() - begin;
  std::vector<double> all;
  for (const auto& of_one : times) all.insert(all.end(), of_one.begin(), of_one.end());
  if (what == "latency") {
    std::printf("%.3f\n", Median(all) * 1e6);
  } else {
    std::printf("%.3f\n", static_cast<double>(count) / seconds);
  }
  return 0;
}

}  // namespace
}  // namespace telegrad::bench

int main(int argc, char** argv) {
  using namespace telegrad::bench;
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 2 && args[0] == "models") return WriteModels(args[1]);
  if (args.size() == 1 && args[0] == "echo") return Serve();
  if (args.size() == 5 && (args[1] == "latency" || args[1] == "rate")) {
    return Measure(args[0], args[1], std::stoll(args[2]), std::stoll(args[3]), std::stoi(args[4]));
  }
  std::fprintf(
      stderr,
      "usage: serving_bench models DIR | echo | ADDRESS latency|rate BYTES COUNT CLIENTS\n");
  return 2;
}
