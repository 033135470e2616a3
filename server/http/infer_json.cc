// Values are read as they come and never become a tree; how deep they may be nested is the rank of
// a tensor and little more.
#include "server/http/infer_json.h"

#include <optional>
#include <utility>

#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/types/limits.h"
#include "server/serving/datatype.h"
#include "server/serving/sequences.h"

namespace telegrad {
namespace {

constexpr size_t kMostTensors = 1024;

// What was converted, kept by the request.
struct JsonTensors {
  std::shared_ptr<const void> body;
  std::vector<std::unique_ptr<std::string>> converted;
};

// The parameters that mean something, of a request, an input or an output.
struct Parameters {
  std::optional<int64_t> binary_data_size, classification, priority, timeout;
  std::optional<bool> binary_data, binary_data_output;
  std::optional<std::string> region;
  std::optional<int64_t> region_bytes, region_offset;
  SequenceMark sequence;
};

// Where a tensor is in shared memory, if it is.
absl::StatusOr<std::optional<RegionPart>> RegionOf(const Parameters& parameters) {
  if (!parameters.region) return std::nullopt;
  if (!parameters.region_bytes) {
    return InvalidArgument("a shared_memory_region without a shared_memory_byte_size");
  }
  return RegionPart{*parameters.region, parameters.region_offset.value_or(0),
                    *parameters.region_bytes};
}

absl::Status Wrong(const JsonReader& reader, std::string_view expected) {
  return InvalidArgument("the request's JSON is wrong at byte ", reader.position(), ": expected ",
                         expected);
}

// Calls `member(key)` for each member of an object, which reads its value.
template <typename Member>
absl::Status ReadObject(JsonReader& reader, std::string_view what, Member member) {
  if (!reader.Eat('{')) return Wrong(reader, StrCat("an object, ", what));
  if (reader.Eat('}')) return absl::OkStatus();
  do {
    std::string key;
    if (!reader.String(&key) || !reader.Eat(':')) return Wrong(reader, StrCat("a key of ", what));
    TG_RETURN_IF_ERROR(member(key));
  } while (reader.Eat(','));
  return reader.Eat('}') ? absl::OkStatus() : Wrong(reader, StrCat("the end of ", what));
}

template <typename Element>
absl::Status ReadArray(JsonReader& reader, std::string_view what, Element element) {
  if (!reader.Eat('[')) return Wrong(reader, StrCat("an array, ", what));
  if (reader.Eat(']')) return absl::OkStatus();
  do {
    TG_RETURN_IF_ERROR(element());
  } while (reader.Eat(','));
  return reader.Eat(']') ? absl::OkStatus() : Wrong(reader, StrCat("the end of ", what));
}

absl::Status ReadInt(JsonReader& reader, std::string_view what, std::optional<int64_t>* out) {
  int64_t value = 0;
  if (!reader.Size(&value)) return Wrong(reader, StrCat("a whole number for ", what));
  *out = value;
  return absl::OkStatus();
}

absl::Status ReadBool(JsonReader& reader, std::string_view what, std::optional<bool>* out) {
  bool value = false;
  if (!reader.Bool(&value)) return Wrong(reader, StrCat("true or false for ", what));
  *out = value;
  return absl::OkStatus();
}

absl::Status ReadParameters(JsonReader& reader, Parameters* out) {
  return ReadObject(reader, "parameters", [&](const std::string& key) -> absl::Status {
    if (key == "binary_data_size") return ReadInt(reader, key, &out->binary_data_size);
    if (key == "classification") return ReadInt(reader, key, &out->classification);
    if (key == "priority") return ReadInt(reader, key, &out->priority);
    if (key == "timeout") return ReadInt(reader, key, &out->timeout);
    if (key == "binary_data") return ReadBool(reader, key, &out->binary_data);
    if (key == "binary_data_output") return ReadBool(reader, key, &out->binary_data_output);
    if (key == "shared_memory_byte_size") return ReadInt(reader, key, &out->region_bytes);
    if (key == "shared_memory_offset") return ReadInt(reader, key, &out->region_offset);
    if (key == "shared_memory_region") {
      return reader.String(&out->region.emplace()) ? absl::OkStatus()
                                                   : Wrong(reader, "the name of a region");
    }
    if (key == "sequence_id") {
      std::string text;
      int64_t number = 0;
      if (reader.String(&text)) return SetSequenceText(text, &out->sequence);
      if (!reader.Size(&number)) return Wrong(reader, "a whole number or a text for sequence_id");
      SetSequenceNumber(static_cast<uint64_t>(number), &out->sequence);
      return absl::OkStatus();
    }
    if (key == "sequence_start" || key == "sequence_end") {
      bool* const flag = key == "sequence_start" ? &out->sequence.start : &out->sequence.end;
      return reader.Bool(flag) ? absl::OkStatus()
                               : Wrong(reader, StrCat("true or false for ", key));
    }
    if (key.starts_with("triton_")) {
      return InvalidArgument("parameter '", Clip(key, 64), "' is reserved and not known here");
    }
    return reader.SkipValue() ? absl::OkStatus() : Wrong(reader, "a value of a parameter");
  });
}

// An input as it is written: its data is read once its type and shape are known.
struct WrittenInput {
  std::optional<std::string_view> data;
  std::optional<int64_t> binary;  // bytes behind the JSON instead
};

absl::Status ReadInput(JsonReader& reader, std::string_view json, InferInput* out,
                       WrittenInput* written) {
  Parameters parameters;
  TG_RETURN_IF_ERROR(ReadObject(reader, "an input", [&](const std::string& key) -> absl::Status {
    if (key == "name") {
      return reader.String(&out->name) ? absl::OkStatus() : Wrong(reader, "a name");
    }
    if (key == "datatype") {
      return reader.String(&out->datatype) ? absl::OkStatus() : Wrong(reader, "a datatype");
    }
    if (key == "parameters") return ReadParameters(reader, &parameters);
    if (key == "shape") {
      out->shape.clear();
      return ReadArray(reader, "a shape", [&]() -> absl::Status {
        int64_t dim = 0;
        if (!reader.Size(&dim)) return Wrong(reader, "a size of at least 0");
        if (out->shape.size() > static_cast<size_t>(kMaxRank)) {
          return InvalidArgument("an input has more than ", kMaxRank, " dimensions");
        }
        out->shape.push_back(dim);
        return absl::OkStatus();
      });
    }
    const size_t begin = reader.position();
    if (!reader.SkipValue()) return Wrong(reader, "a value, not nested too deep");
    if (key == "data") written->data = json.substr(begin, reader.position() - begin);
    return absl::OkStatus();
  }));
  written->binary = parameters.binary_data_size;
  TG_ASSIGN_OR_RETURN(out->region, RegionOf(parameters));
  if (out->region && (written->binary || written->data)) {
    return InvalidArgument("input '", Clip(out->name, 256),
                           "' has data although it is in a shared memory region");
  }
  if (written->binary && written->data) {
    return InvalidArgument("input '", Clip(out->name, 256), "' has data and binary_data_size");
  }
  if (written->binary || written->data || out->region) return absl::OkStatus();
  return InvalidArgument("input '", Clip(out->name, 256), "' has no data");
}

void SetBytes(std::string_view bytes, InferInput* input) {
  input->bytes = static_cast<int64_t>(bytes.size());
  input->pieces = {{reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}};
}

absl::Status ReadOutput(JsonReader& reader, WantedOutput* out, int* binary) {
  Parameters parameters;
  TG_RETURN_IF_ERROR(ReadObject(reader, "an output", [&](const std::string& key) -> absl::Status {
    if (key == "name") {
      return reader.String(&out->name) ? absl::OkStatus() : Wrong(reader, "a name");
    }
    if (key == "parameters") return ReadParameters(reader, &parameters);
    return reader.SkipValue() ? absl::OkStatus() : Wrong(reader, "a value of an output");
  }));
  out->classes = parameters.classification.value_or(0);
  TG_ASSIGN_OR_RETURN(out->region, RegionOf(parameters));
  *binary = parameters.binary_data ? static_cast<int>(*parameters.binary_data) : -1;
  return absl::OkStatus();
}

// Whether output `i` follows the JSON.
bool IsBinary(const JsonAnswer& answer, size_t i) {
  const int said = i < answer.output_binary.size() ? answer.output_binary[i] : -1;
  return said == 1 || (said == -1 && answer.binary);
}

}  // namespace

absl::Status ParseInferJson(std::string_view body, size_t json_bytes,
                            const std::shared_ptr<const void>& owner, const PayBytes& pay,
                            InferRequest* request, JsonAnswer* answer) {
  if (json_bytes > body.size()) {
    return InvalidArgument("Inference-Header-Content-Length is ", json_bytes,
                           ", and the request has ", body.size(), " bytes");
  }
  auto tensors = std::make_shared<JsonTensors>();
  tensors->body = owner;
  const std::string_view json = body.substr(0, json_bytes);
  JsonReader reader(json);
  Parameters parameters;
  std::vector<WrittenInput> written;
  TG_RETURN_IF_ERROR(ReadObject(reader, "the request", [&](const std::string& key) -> absl::Status {
    if (key == "id") {
      return reader.String(&answer->id) ? CheckRequestId(answer->id) : Wrong(reader, "an id");
    }
    if (key == "parameters") return ReadParameters(reader, &parameters);
    if (key == "inputs") {
      return ReadArray(reader, "inputs", [&]() -> absl::Status {
        if (request->inputs.size() >= kMostTensors) {
          return ResourceExhausted("the request has more than ", kMostTensors, " inputs");
        }
        return ReadInput(reader, json, &request->inputs.emplace_back(), &written.emplace_back());
      });
    }
    if (key == "outputs") {
      return ReadArray(reader, "outputs", [&]() -> absl::Status {
        if (request->outputs.size() >= kMostTensors) {
          return ResourceExhausted("the request has more than ", kMostTensors, " outputs");
        }
        return ReadOutput(reader, &request->outputs.emplace_back(),
                          &answer->output_binary.emplace_back());
      });
    }
    return reader.SkipValue() ? absl::OkStatus() : Wrong(reader, "a value, not nested too deep");
  }));
  if (!reader.AtEnd()) return Wrong(reader, "the end of the request");
  answer->binary = parameters.binary_data_output.value_or(false);
  request->priority = static_cast<uint64_t>(parameters.priority.value_or(0));
  request->timeout_us = parameters.timeout.value_or(0);
  request->sequence = std::move(parameters.sequence);
  std::string_view rest = body.substr(json_bytes);
  for (size_t i = 0; i < written.size(); ++i) {
    InferInput& input = request->inputs[i];
    if (input.region) continue;
    if (!written[i].binary) {
      auto bytes = std::make_unique<std::string>();
      TG_RETURN_IF_ERROR(ReadJsonValues(*written[i].data, input, pay, bytes.get()));
      SetBytes(*bytes, &input);
      tensors->converted.push_back(std::move(bytes));
      continue;
    }
    const int64_t bytes = *written[i].binary;
    if (static_cast<uint64_t>(bytes) > rest.size()) {
      return InvalidArgument("input '", Clip(input.name, 256), "' has a binary_data_size of ",
                             bytes, ", and ", rest.size(), " bytes are left");
    }
    SetBytes(rest.substr(0, static_cast<size_t>(bytes)), &input);
    rest.remove_prefix(static_cast<size_t>(bytes));
  }
  if (!rest.empty()) {
    return InvalidArgument("the request has ", rest.size(), " bytes behind those of its inputs");
  }
  request->owner = std::move(tensors);
  return absl::OkStatus();
}

size_t JsonBytesOf(const InferResult& result, const JsonAnswer& answer) {
  size_t bytes = 0;
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    const InferOutput& output = result.outputs[i];
    if (!output.region && !IsBinary(answer, i)) bytes += static_cast<size_t>(output.bytes);
  }
  return bytes;
}

absl::StatusOr<JsonBody> WriteInferJson(const InferResult& result, const JsonAnswer& answer,
                                        const PayBytes& pay) {
  JsonBody body;
  std::string& json = body.json;
  StrAppend(&json, "{\"model_name\":", JsonQuote(result.model),
            ",\"model_version\":", JsonQuote(result.version));
  if (!answer.id.empty()) StrAppend(&json, ",\"id\":", JsonQuote(answer.id));
  json += ",\"outputs\":[";
  for (size_t i = 0; i < result.outputs.size(); ++i) {
    const InferOutput& output = result.outputs[i];
    StrAppend(&json, i == 0 ? "" : ",", "{\"name\":", JsonQuote(output.name), ",\"datatype\":\"",
              output.datatype, "\",\"shape\":[");
    for (size_t d = 0; d < output.shape.size(); ++d) {
      StrAppend(&json, d == 0 ? "" : ",", output.shape[d]);
    }
    if (output.region) {
      StrAppend(&json,
                "],\"parameters\":{\"shared_memory_region\":", JsonQuote(output.region->region),
                ",\"shared_memory_byte_size\":", output.region->bytes,
                ",\"shared_memory_offset\":", output.region->offset, "}}");
      continue;
    }
    if (IsBinary(answer, i)) {
      StrAppend(&json, "],\"parameters\":{\"binary_data_size\":", output.bytes, "}}");
      body.parts.push_back({output.data, static_cast<size_t>(output.bytes)});
      continue;
    }
    json += "],\"data\":[";
    TG_RETURN_IF_ERROR(WriteJsonValues(output, pay, &json));
    json += "]}";
  }
  json += "]}";
  return body;
}

}  // namespace telegrad
