// Inference requests of both front ends. The first byte chooses: a gRPC message, or a body of HTTP,
// whose JSON ends at the first zero byte and has binary tensors behind it.
#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <string_view>

#include "engine/base/json.h"
#include "server/http/infer_json.h"
#include "server/http/routes.h"
#include "server/service/infer_messages.h"
#include "server/serving/bytes_tensor.h"
#include "server/serving/datatype.h"
#include "server/tenant/tenant.h"
#include "tests/fakes/copy_engine.h"
#include "tests/fuzz/fuzz.h"

namespace telegrad {
namespace {

std::shared_ptr<Tenant> Payer() {
  static Metrics metrics;
  static const auto tenant =
      std::make_shared<Tenant>("fuzz", std::make_shared<fakes::CopyEngine>(), &metrics);
  return tenant;
}

int64_t Charged() { return Payer()->accounts[Quota::kHostStaging].used(); }

std::string Joined(const InferInput& input) {
  std::string out;
  for (const auto& piece : input.pieces) {
    out.append(reinterpret_cast<const char*>(piece.data()), piece.size());
  }
  return out;
}

void CheckRequest(const InferRequest& request) {
  for (const InferInput& input : request.inputs) {
    FUZZ_CHECK(static_cast<int64_t>(Joined(input).size()) == input.bytes);
    const auto elements = ReadElements(input.pieces, static_cast<int64_t>(input.shape.size()));
    FUZZ_CHECK(elements.ok() ==
               CheckElements(input.pieces, static_cast<int64_t>(input.shape.size())).ok());
    if (!elements.ok()) continue;
    std::string again;
    for (const std::string& element : *elements) AppendElement(element, &again);
    FUZZ_CHECK(again == Joined(input));
  }
}

// Protobuf, which reads the raw contents like any other field, is the judge.
void FuzzMessage(std::string_view bytes) {
  const grpc::Slice slices[] = {
      grpc::Slice(bytes.substr(0, bytes.size() / 2).data(), bytes.size() / 2),
      grpc::Slice(bytes.substr(bytes.size() / 2).data(), bytes.size() - bytes.size() / 2)};
  const grpc::ByteBuffer buffer(slices, 2);
  inference::ModelInferRequest judge;
  const bool is_message = judge.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()));
  const auto received = ToInferRequest(buffer, *Payer());
  static fuzz::Count count("gRPC messages taken");
  count.Input();
  if (!received.ok()) {
    FUZZ_CHECK(!received.status().message().empty());
    return;
  }
  count.Passed();
  FUZZ_CHECK(is_message);
  const InferRequest& request = received->request;
  CheckRequest(request);
  FUZZ_CHECK(Charged() >= static_cast<int64_t>(bytes.size()));
  FUZZ_CHECK(request.model == judge.model_name() && request.version == judge.model_version());
  FUZZ_CHECK(static_cast<int>(request.inputs.size()) == judge.inputs_size());
  FUZZ_CHECK(static_cast<int>(request.outputs.size()) == judge.outputs_size());
  for (int i = 0; i < judge.inputs_size(); ++i) {
    const InferInput& input = request.inputs[static_cast<size_t>(i)];
    FUZZ_CHECK(input.name == judge.inputs(i).name());
    if (judge.raw_input_contents_size() > 0) {
      FUZZ_CHECK(Joined(input) == judge.raw_input_contents(i));
    }
  }
}

// What was read is written again as an answer, and that is JSON.
void CheckAnswer(const InferRequest& request, const JsonAnswer& said, const PayBytes& pay) {
  InferResult result{.model = "m", .version = "1", .outputs = {}};
  for (const InferInput& input : request.inputs) {
    if (input.datatype != kBytesDatatype && !FromDatatype(input.datatype)) continue;
    const auto text = std::make_shared<const std::string>(Joined(input));
    result.outputs.push_back({.name = input.name,
                              .datatype = input.datatype,
                              .shape = input.shape,
                              .data = text->data(),
                              .bytes = input.bytes,
                              .owner = text});
  }
  const auto written = WriteInferJson(result, said, pay);
  if (!written.ok()) return;
  JsonReader reader(written->json);
  FUZZ_CHECK(reader.SkipValue() && reader.AtEnd());
}

void FuzzBody(std::string_view text) {
  const auto body = std::make_shared<const std::string>(text);
  const size_t zero = body->find('\0');
  const size_t json_bytes = zero == std::string::npos ? body->size() : zero;
  std::string joined(*body);
  if (zero != std::string::npos) joined.erase(zero, 1);
  InferRequest request;
  JsonAnswer answer;
  std::vector<Reservation> paid;
  const PayBytes pay = [&](int64_t bytes) -> absl::Status {
    FUZZ_CHECK(bytes >= 0);
    auto taken = Reservation::Take(Payer()->accounts.shared(Quota::kHostStaging), bytes);
    if (!taken.ok()) return taken.status();
    paid.push_back(*std::move(taken));
    return absl::OkStatus();
  };
  const absl::Status status = ParseInferJson(joined, json_bytes, body, pay, &request, &answer);
  static fuzz::Count count("bodies taken");
  count.Input();
  if (!status.ok()) {
    FUZZ_CHECK(!status.message().empty());
    return;
  }
  count.Passed();
  CheckRequest(request);
  int64_t converted = 0;
  for (const InferInput& input : request.inputs) converted += input.bytes;
  FUZZ_CHECK(converted <= Charged() + static_cast<int64_t>(joined.size()));
  CheckAnswer(request, answer, pay);
}

void FuzzRoute(std::string_view path) {
  const auto route = FindRoute(path);
  if (!route) return;
  FUZZ_CHECK(path.starts_with('/'));
  FUZZ_CHECK(route->model.find('/') == std::string::npos);
  FUZZ_CHECK(route->version.find('/') == std::string::npos);
}

using Rng = std::mt19937;

template <typename T, size_t n>
T AnyOf(Rng& rng, const T (&all)[n]) {
  return all[rng() % n];
}

constexpr const char* kTypes[] = {"FP32", "INT8", "UINT64", "BOOL", "BYTES", "FP16", "FP33"};
constexpr const char* kParameters[] = {
    "classification", "shared_memory_region", "priority", "sequence_id", "timeout",
    "triton_x",       "binary_data"};

std::string NewMessage(Rng& rng) {
  inference::ModelInferRequest message;
  message.set_model_name("m");
  const bool raw = rng() % 2 == 0;
  for (uint32_t i = rng() % 4; i > 0; --i) {
    auto* input = message.add_inputs();
    input->set_name(std::string(1, static_cast<char>('a' + i)));
    input->set_datatype(AnyOf(rng, kTypes));
    for (uint32_t d = rng() % 3; d > 0; --d) input->add_shape(rng() % 4);
    std::string bytes(rng() % 40, '\0');
    for (char& c : bytes) c = static_cast<char>(rng() % 5);
    if (raw) {
      message.add_raw_input_contents(bytes);
    } else if (input->datatype() == kBytesDatatype) {
      input->mutable_contents()->add_bytes_contents(bytes);
    } else {
      input->mutable_contents()->add_int_contents(static_cast<int>(rng() % 300));
    }
  }
  if (rng() % 2 == 0) message.add_outputs()->set_name("y");
  if (rng() % 4 == 0) {
    (*message.mutable_parameters())[AnyOf(rng, kParameters)].set_int64_param(rng() % 3);
  }
  return StrCat(std::string_view("\0", 1), message.SerializeAsString());
}

std::string NewBody(Rng& rng) {
  std::string json = "{\"id\":\"q\",\"inputs\":[", binary;
  for (uint32_t i = rng() % 3, n = 0; n < i; ++n) {
    const std::string type = AnyOf(rng, kTypes);
    const uint32_t count = rng() % 4;
    StrAppend(&json, n == 0 ? "" : ",", "{\"name\":\"x\",\"datatype\":\"", type, "\",\"shape\":[",
              count, "]");
    if (rng() % 2 == 0) {
      StrAppend(&json, ",\"parameters\":{\"binary_data_size\":", count, "}}");
      binary.append(count, 'b');
      continue;
    }
    StrAppend(&json, ",\"data\":[");
    for (uint32_t v = 0; v < count; ++v) {
      StrAppend(&json, v == 0 ? "" : ",", type == "BYTES" ? "\"\\u00e9 s\"" : "1");
    }
    json += "]}";
  }
  json += "]";
  if (rng() % 2 == 0) {
    StrAppend(&json, ",\"parameters\":{\"", AnyOf(rng, kParameters), "\":", rng() % 2, "}");
  }
  json += "}";
  return StrCat("\2", json, binary.empty() ? "" : std::string(1, '\0'), binary);
}

}  // namespace
}  // namespace telegrad

// Half of the inputs begin as a new request that is right in most parts.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  telegrad::Rng rng(seed);
  if (rng() % 2 == 0) {
    const std::string made = rng() % 2 == 0 ? telegrad::NewMessage(rng) : telegrad::NewBody(rng);
    size = std::min(made.size(), max_size);
    std::copy_n(made.data(), size, data);
    if (rng() % 4 == 0) return size;
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

FUZZ_TARGET(data) {
  if (data.empty()) return;
  google::protobuf::SetLogHandler(nullptr);
  const std::string_view rest(reinterpret_cast<const char*>(data.data()) + 1, data.size() - 1);
  switch (data[0] % 4) {
    case 0:
    case 1:
      telegrad::FuzzMessage(rest);
      break;
    case 2:
      telegrad::FuzzBody(rest);
      break;
    default:
      telegrad::FuzzRoute(rest);
  }
  FUZZ_CHECK(telegrad::Charged() == 0);
}
