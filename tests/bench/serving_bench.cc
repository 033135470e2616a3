// Requests for models, and a server that those for identity models are compared with: one that
// answers the same messages with what they have, and does nothing else.
//
// Usage:
//   serving_bench models DIR
//       writes the models identity_BYTES
//   serving_bench echo
//       serves; prints `listening on HOST:PORT`
//   serving_bench ADDRESS latency BYTES COUNT CLIENTS
//       asks the model identity_BYTES; prints the median, in microseconds
//   serving_bench ADDRESS rate BYTES COUNT CLIENTS
//       prints requests a second
//   serving_bench ADDRESS infer MODEL COUNT CLIENTS NAME:FP32|INT64:D,D...
//       asks that model with these inputs; prints requests a second, the median and the 99th
//       percentile in milliseconds, and the sum of the magnitudes of the first output's floats
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
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

inference::ModelInferRequest IdentityRequest(int64_t bytes) {
  inference::ModelInferRequest request;
  request.set_model_name(ModelName(bytes));
  auto* input = request.add_inputs();
  input->set_name("x");
  input->set_datatype("FP32");
  input->add_shape(bytes / 4);
  request.add_raw_input_contents(std::string(static_cast<size_t>(bytes), '\1'));
  return request;
}

// Adds an input that is given as NAME:DATATYPE:D,D..., with the contents that onnx_run_bench has.
bool AddInput(const std::string& text, inference::ModelInferRequest* request) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  if (parts.size() != 3) return false;
  auto* input = request->add_inputs();
  input->set_name(parts[0]);
  input->set_datatype(parts[1]);
  int64_t elements = 1;
  const std::vector<std::string> dims = absl::StrSplit(parts[2], ',');
  for (const std::string& dim : dims) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(dim, &size) || size < 1) return false;
    input->add_shape(size);
    elements *= size;
  }
  std::string bytes;
  const auto add = [&](auto value) { bytes.append(reinterpret_cast<char*>(&value), sizeof value); };
  for (int64_t i = 0; i < elements; ++i) {
    if (parts[1] == "FP32") {
      add(static_cast<float>(i * 7919 % 1000) / 1000 - 0.5F);
    } else if (parts[1] == "INT64") {
      add(i % 2);
    } else {
      return false;
    }
  }
  *request->add_raw_input_contents() = std::move(bytes);
  return true;
}

double SumOfFirst(const inference::ModelInferResponse& response) {
  double sum = 0;
  if (response.raw_output_contents_size() == 0) {
    for (const float value : response.outputs(0).contents().fp32_contents()) sum += std::abs(value);
    return sum;
  }
  const std::string& bytes = response.raw_output_contents(0);
  for (size_t at = 0; at + 4 <= bytes.size(); at += 4) {
    float value;
    std::memcpy(&value, bytes.data() + at, 4);
    sum += std::abs(value);
  }
  return sum;
}

// Requests of one client until none is left; how long each took, in seconds. `check` is given each
// answer.
template <typename Check>
std::vector<double> Ask(const std::string& address, const inference::ModelInferRequest& request,
                        std::atomic<int64_t>* left, const Check& check) {
  grpc::ChannelArguments arguments;
  for (const ChannelArgument& row : kChannelArguments) arguments.SetInt(row.name, row.value);
  arguments.SetInt("grpc.use_local_subchannel_pool", 1);  // a connection of its own
  const auto stub = inference::GRPCInferenceService::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  for (bool ready = false; !ready;) {  // models are loaded in the background
    grpc::ClientContext context;
    inference::ModelReadyRequest name;
    inference::ModelReadyResponse response;
    name.set_name(request.model_name());
    context.set_wait_for_ready(true);  // the server may only be starting
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(1));
    const grpc::Status status = stub->ModelReady(&context, name, &response);
    if (!status.ok()) {
      std::fprintf(stderr, "serving_bench: %s\n", status.error_message().c_str());
      std::exit(1);
    }
    ready = response.ready();
  }
  std::vector<double> times;
  while (left->fetch_sub(1) > 0) {
    grpc::ClientContext context;
    inference::ModelInferResponse response;
    const double begin = Seconds();
    const grpc::Status status = stub->ModelInfer(&context, request, &response);
    times.push_back(Seconds() - begin);
    if (!status.ok() || response.outputs_size() == 0 || !check(response)) {
      std::fprintf(stderr, "serving_bench: %s\n",
                   status.ok() ? "a wrong answer" : status.error_message().c_str());
      std::exit(1);
    }
  }
  return times;
}

// The times of `count` requests of so many clients, each with a connection of its own, and how long
// they took together, in seconds.
template <typename Check>
std::pair<std::vector<double>, double> AskAll(const std::string& address,
                                              const inference::ModelInferRequest& request,
                                              int64_t warm, int64_t count, int clients,
                                              const Check& check) {
  const auto run = [&](int64_t requests) {
    std::atomic<int64_t> left = requests;
    std::vector<std::vector<double>> times(static_cast<size_t>(clients));
    std::vector<std::thread> threads;
    for (auto& of_one : times) {
      threads.emplace_back([&] { of_one = Ask(address, request, &left, check); });
    }
    for (std::thread& thread : threads) thread.join();
    return times;
  };
  run(warm);
  const double begin = Seconds();
  const auto times = run(count);
  const double seconds = Seconds() - begin;
  std::vector<double> all;
  for (const auto& of_one : times) all.insert(all.end(), of_one.begin(), of_one.end());
  return {all, seconds};
}

int Measure(const std::string& address, const std::string& what, int64_t bytes, int64_t count,
            int clients) {
  const inference::ModelInferRequest request = IdentityRequest(bytes);
  const auto [times, seconds] =
      AskAll(address, request, clients * 8, count, clients,
             [&](const inference::ModelInferResponse& response) {
               return response.raw_output_contents(0) == request.raw_input_contents(0);
             });
  if (what == "latency") {
    std::printf("%.3f\n", Median(times) * 1e6);
  } else {
    std::printf("%.3f\n", static_cast<double>(count) / seconds);
  }
  return 0;
}

int Infer(const std::string& address, const std::string& model, int64_t count, int clients,
          std::span<const std::string> inputs) {
  inference::ModelInferRequest request;
  request.set_model_name(model);
  for (const std::string& input : inputs) {
    if (AddInput(input, &request)) continue;
    std::fprintf(stderr, "serving_bench: '%s' is no NAME:FP32|INT64:D,D...\n", input.c_str());
    return 2;
  }
  std::atomic<double> sum = NAN;
  // Each batch, of whatever size, gives a request the same answer but for the order of sums.
  auto [times, seconds] = AskAll(address, request, clients * 2, count, clients,
                                 [&](const inference::ModelInferResponse& response) {
                                   const double now = SumOfFirst(response);
                                   double before = NAN;
                                   if (sum.compare_exchange_strong(before, now)) return true;
                                   return std::abs(now - before) <= 1e-4 * std::abs(before);
                                 });
  std::sort(times.begin(), times.end());
  const auto at = [&](double part) {
    return 1e3 * times[static_cast<size_t>(part * static_cast<double>(times.size() - 1))];
  };
  std::printf("%.4f %.4f %.4f %.8g\n", static_cast<double>(count) / seconds, at(0.5), at(0.99),
              sum.load());
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
  if (args.size() >= 6 && args[1] == "infer") {
    return Infer(args[0], args[2], std::stoll(args[3]), std::stoi(args[4]),
                 std::span(args).subspan(5));
  }
  std::fprintf(stderr,
               "usage: serving_bench models DIR | echo | ADDRESS latency|rate BYTES COUNT CLIENTS "
               "| ADDRESS infer MODEL COUNT CLIENTS NAME:DATATYPE:D,D...\n");
  return 2;
}
