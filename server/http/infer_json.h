// Inference requests and responses as JSON, with tensors in it or, as the binary extension has it,
// behind it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/http/json_values.h"
#include "server/serving/infer.h"

namespace telegrad {

// What a response is to look like.
struct JsonAnswer {
  std::string id;
  bool binary = false;             // of outputs that say nothing
  std::vector<int> output_binary;  // by wanted output: 1, 0, or -1 where it says nothing
};

// `body` is `json_bytes` of JSON and then the inputs that say binary_data_size, in order. The
// request refers to it, and keeps `owner`. What its values take beside the body is paid for.
// INVALID_ARGUMENT says where the JSON is wrong.
absl::Status ParseInferJson(std::string_view body, size_t json_bytes,
                            const std::shared_ptr<const void>& owner, const PayBytes& pay,
                            InferRequest* request, JsonAnswer* answer);

// The JSON, with parts of memory that follow it.
struct JsonBody {
  std::string json;
  struct Part {
    const void* data = nullptr;
    size_t bytes = 0;
  };
  std::vector<Part> parts;
};
// The bytes of the values that WriteInferJson writes as JSON, which itself has a few times as many.
size_t JsonBytesOf(const InferResult& result, const JsonAnswer& answer);
// INVALID_ARGUMENT for an output that JSON cannot express.
absl::StatusOr<JsonBody> WriteInferJson(const InferResult& result, const JsonAnswer& answer,
                                        const PayBytes& pay);

}  // namespace telegrad
