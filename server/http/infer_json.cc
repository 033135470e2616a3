// Values are read as they come and never become a tree; how deep they may be nested is the rank of
// a tensor and little more.
#include "server/http/infer_json.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/types/limits.h"
#include "server/serving/datatype.h"

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
};

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
    if (key == "shared_memory_region") {
      return Unimplemented("a tensor is in a shared memory region, and this server has none");
    }
    if (key.starts_with("sequence_")) {
      std::string text;
      bool is_set = true;
      std::string_view number;
      if (reader.NumberText(&number)) {
        is_set = number != "0";
      } else if (!reader.Bool(&is_set) && !reader.String(&text)) {
        return Wrong(reader, StrCat("a value for ", key));
      }
      if (!is_set) return absl::OkStatus();
      return Unimplemented("parameter '", key, "': no model here keeps a state between requests");
    }
    if (key.starts_with("triton_")) {
      return InvalidArgument("parameter '", Clip(key, 64), "' is reserved and not known here");
    }
    return reader.SkipValue() ? absl::OkStatus() : Wrong(reader, "a value of a parameter");
  });
}

template <typename T>
bool ReadValue(JsonReader& reader, std::string* out) {
  T value{};
  if constexpr (std::is_same_v<T, bool>) {
    int64_t number = 0;
    if (!reader.Bool(&value)) {
      if (!reader.Size(&number) || number > 1) return false;
      value = number == 1;
    }
  } else {
    std::string_view text;
    if (!reader.NumberText(&text)) return false;
    const char* const end = text.data() + text.size();
    const auto [parsed, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || parsed != end) return false;
  }
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out->append(bytes, sizeof(T));
  return true;
}

using ReadOne = bool (*)(JsonReader&, std::string*);

// Null where the type is not written in JSON.
ReadOne ReaderOf(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return &ReadValue<bool>;
    case DType::kInt8:
      return &ReadValue<int8_t>;
    case DType::kInt16:
      return &ReadValue<int16_t>;
    case DType::kInt32:
      return &ReadValue<int32_t>;
    case DType::kInt64:
      return &ReadValue<int64_t>;
    case DType::kUInt8:
      return &ReadValue<uint8_t>;
    case DType::kUInt16:
      return &ReadValue<uint16_t>;
    case DType::kUInt32:
      return &ReadValue<uint32_t>;
    case DType::kUInt64:
      return &ReadValue<uint64_t>;
    case DType::kFloat32:
      return &ReadValue<float>;
    case DType::kFloat64:
      return &ReadValue<double>;
    default:
      return nullptr;
  }
}

// All values of `text`, flat or nested, in order.
absl::Status ReadData(std::string_view text, const InferInput& input, std::string* out) {
  if (!IsDatatype(input.datatype)) {
    return InvalidArgument("input '", Clip(input.name, 256), "': there is no datatype '",
                           Clip(input.datatype, 64), "'");
  }
  const auto dtype = FromDatatype(input.datatype);
  const ReadOne read = dtype ? ReaderOf(*dtype) : nullptr;
  if (read == nullptr) {
    return Unimplemented("input '", Clip(input.name, 256), "': ", input.datatype,
                         " is not written in JSON here; send it as binary data");
  }
  JsonReader reader(text);
  int depth = 0;
  const auto wrong = [&] {
    return InvalidArgument("input '", Clip(input.name, 256), "': byte ", reader.position(),
                           " of its data is no value of ", input.datatype);
  };
  while (true) {
    while (reader.Eat('[')) {
      if (++depth > kMaxRank) return wrong();
    }
    if (depth == 0) return wrong();
    if (!reader.Eat(']')) {
      if (!read(reader, out)) return wrong();
    } else {
      --depth;
    }
    while (depth > 0 && !reader.Eat(',')) {
      if (!reader.Eat(']')) return wrong();
      --depth;
    }
    if (depth == 0) return reader.AtEnd() ? absl::OkStatus() : wrong();
  }
}

absl::Status ReadInput(JsonReader& reader, std::string_view json, JsonTensors* tensors,
                       InferInput* out, std::optional<int64_t>* binary) {
  Parameters parameters;
  std::optional<std::string_view> data;
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
    if (key == "data") data = json.substr(begin, reader.position() - begin);
    return absl::OkStatus();
  }));
  *binary = parameters.binary_data_size;
  if (binary->has_value() && data) {
    return InvalidArgument("input '", Clip(out->name, 256), "' has data and binary_data_size");
  }
  if (binary->has_value()) return absl::OkStatus();
  if (!data) return InvalidArgument("input '", Clip(out->name, 256), "' has no data");
  auto bytes = std::make_unique<std::string>();
  TG_RETURN_IF_ERROR(ReadData(*data, *out, bytes.get()));
  out->bytes = static_cast<int64_t>(bytes->size());
  out->pieces = {{reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size()}};
  tensors->converted.push_back(std::move(bytes));
  return absl::OkStatus();
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
  *binary = parameters.binary_data ? static_cast<int>(*parameters.binary_data) : -1;
  return absl::OkStatus();
}

template <typename T>
absl::Status WriteValues(const InferOutput& output, std::string* json) {
  const auto count = static_cast<size_t>(output.bytes) / sizeof(T);
  const auto* at = static_cast<const char*>(output.data);
  for (size_t i = 0; i < count; ++i, at += sizeof(T)) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    if (i > 0) json->push_back(',');
    if constexpr (std::is_same_v<T, bool>) {
      json->append(value ? "true" : "false");
    } else {
      if constexpr (std::is_floating_point_v<T>) {
        if (!std::isfinite(value)) {
          return InvalidArgument("output '", output.name,
                                 "' has a value that JSON cannot express, NaN or an infinity; ask "
                                 "for binary_data");
        }
      }
      char text[32];
      const auto end = std::to_chars(text, text + sizeof(text), value).ptr;
      json->append(text, end);
    }
  }
  return absl::OkStatus();
}

// Strings, each behind its length.
absl::Status WriteStrings(const InferOutput& output, std::string* json) {
  const auto* at = static_cast<const uint8_t*>(output.data);
  const uint8_t* const end = at + output.bytes;
  for (bool first = true; end - at >= 4; first = false) {
    uint32_t length = 0;
    std::memcpy(&length, at, sizeof(length));
    at += sizeof(length);
    if (static_cast<int64_t>(length) > end - at) break;
    const std::string_view text(reinterpret_cast<const char*>(at), length);
    if (!IsUtf8(text)) {
      return InvalidArgument("output '", output.name,
                             "' has a string that is no UTF-8; ask for "
                             "binary_data");
    }
    StrAppend(json, first ? "" : ",", JsonQuote(text));
    at += length;
  }
  return absl::OkStatus();
}

absl::Status WriteData(const InferOutput& output, std::string* json) {
  if (output.datatype == kBytesDatatype) return WriteStrings(output, json);
  switch (*FromDatatype(output.datatype)) {
    case DType::kBool:
      return WriteValues<bool>(output, json);
    case DType::kInt8:
      return WriteValues<int8_t>(output, json);
    case DType::kInt16:
      return WriteValues<int16_t>(output, json);
    case DType::kInt32:
      return WriteValues<int32_t>(output, json);
    case DType::kInt64:
      return WriteValues<int64_t>(output, json);
    case DType::kUInt8:
      return WriteValues<uint8_t>(output, json);
    case DType::kUInt16:
      return WriteValues<uint16_t>(output, json);
    case DType::kUInt32:
      return WriteValues<uint32_t>(output, json);
    case DType::kUInt64:
      return WriteValues<uint64_t>(output, json);
    case DType::kFloat32:
      return WriteValues<float>(output, json);
    case DType::kFloat64:
      return WriteValues<double>(output, json);
    default:
      return InvalidArgument("output '", output.name, "' is ", output.datatype,
                             ", which is not written in JSON here; ask for binary_data");
  }
}

}  // namespace

absl::Status ParseInferJson(std::string_view body, size_t json_bytes,
                            const std::shared_ptr<const void>& owner, InferRequest* request,
                            JsonAnswer* answer) {
  if (json_bytes > body.size()) {
    return InvalidArgument("Inference-Header-Content-Length is ", json_bytes,
                           ", and the request has ", body.size(), " bytes");
  }
  auto tensors = std::make_shared<JsonTensors>();
  tensors->body = owner;
  const std::string_view json = body.substr(0, json_bytes);
  JsonReader reader(json);
  Parameters parameters;
  std::vector<std::optional<int64_t>> binary;
  TG_RETURN_IF_ERROR(ReadObject(reader, "the request", [&](const std::string& key) -> absl::Status {
    if (key == "id") return reader.String(&answer->id) ? absl::OkStatus() : Wrong(reader, "an id");
    if (key == "parameters") return ReadParameters(reader, &parameters);
    if (key == "inputs") {
      return ReadArray(reader, "inputs", [&]() -> absl::Status {
        if (request->inputs.size() >= kMostTensors) {
          return ResourceExhausted("the request has more than ", kMostTensors, " inputs");
        }
        return ReadInput(reader, json, tensors.get(), &request->inputs.emplace_back(),
                         &binary.emplace_back());
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
  std::string_view rest = body.substr(json_bytes);
  for (size_t i = 0; i < binary.size(); ++i) {
    if (!binary[i]) continue;
    if (static_cast<uint64_t>(*binary[i]) > rest.size()) {
      return InvalidArgument("input '", Clip(request->inputs[i].name, 256),
                             "' has a "
                             "binary_data_size of ",
                             *binary[i], ", and ", rest.size(), " bytes are left");
    }
    const auto bytes = static_cast<size_t>(*binary[i]);
    request->inputs[i].bytes = *binary[i];
    request->inputs[i].pieces = {{reinterpret_cast<const uint8_t*>(rest.data()), bytes}};
    rest.remove_prefix(bytes);
  }
  if (!rest.empty()) {
    return InvalidArgument("the request has ", rest.size(), " bytes behind those of its inputs");
  }
  request->owner = std::move(tensors);
  return absl::OkStatus();
}

absl::StatusOr<JsonBody> WriteInferJson(const InferResult& result, const JsonAnswer& answer) {
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
    const int said = i < answer.output_binary.size() ? answer.output_binary[i] : -1;
    if (said == 1 || (said == -1 && answer.binary)) {
      StrAppend(&json, "],\"parameters\":{\"binary_data_size\":", output.bytes, "}}");
      body.parts.push_back({output.data, static_cast<size_t>(output.bytes)});
      continue;
    }
    json += "],\"data\":[";
    TG_RETURN_IF_ERROR(WriteData(output, &json));
    json += "]}";
  }
  json += "]}";
  return body;
}

}  // namespace telegrad
