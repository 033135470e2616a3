// Reads and writes the values of one tensor, by a function for each element type. The bytes that
// values will take are paid from the text's length before they are read.
#include "server/http/json_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "engine/base/json.h"
#include "engine/base/status.h"
#include "engine/frontend/tensor/host_tensor.h"
#include "engine/types/limits.h"
#include "server/serving/bytes_tensor.h"
#include "server/serving/datatype.h"

namespace telegrad {
namespace {

constexpr size_t kPaidTogether = 64 << 10;  // bytes of text that are written before they are paid

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

bool ReadText(JsonReader& reader, std::string* out) {
  std::string text;
  if (!reader.String(&text)) return false;
  AppendElement(text, out);
  return true;
}

using ReadOne = bool (*)(JsonReader&, std::string*);

// Null where the type is not written in JSON.
ReadOne ReaderOf(std::string_view datatype) {
  if (datatype == kBytesDatatype) return &ReadText;
  switch (*FromDatatype(datatype)) {
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

// The most that `text` can become: values are apart by a comma, and a string has two quotes, too.
int64_t MostBytes(std::string_view text, std::string_view datatype) {
  const auto bytes = static_cast<int64_t>(text.size());
  const auto dtype = FromDatatype(datatype);
  return dtype ? (bytes / 2 + 1) * ByteSize(*dtype) : 2 * bytes;
}

template <typename T>
absl::Status WriteNumbers(const InferOutput& output, const PayBytes& pay, std::string* json) {
  const auto count = static_cast<size_t>(output.bytes) / sizeof(T);
  const auto* at = static_cast<const char*>(output.data);
  size_t paid = json->size();
  for (size_t i = 0; i < count; ++i, at += sizeof(T)) {
    if (i > 0) json->push_back(',');
    if constexpr (std::is_same_v<T, bool>) {
      // A client's byte may be any, which a bool of C++ may not.
      json->append(*at != 0 ? "true" : "false");
    } else {
      T value;
      std::memcpy(&value, at, sizeof(T));
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
    if (json->size() - paid >= kPaidTogether) {
      TG_RETURN_IF_ERROR(pay(static_cast<int64_t>(json->size() - paid)));
      paid = json->size();
    }
  }
  return pay(static_cast<int64_t>(json->size() - paid));
}

absl::Status WriteTexts(const InferOutput& output, const PayBytes& pay, std::string* json) {
  const size_t before = json->size();
  // What is quoted at most: six characters for one.
  TG_RETURN_IF_ERROR(pay(6 * output.bytes));
  std::string_view rest(static_cast<const char*>(output.data), static_cast<size_t>(output.bytes));
  for (std::string_view text; TakeElement(&rest, &text);) {
    if (!IsUtf8(text)) {
      return InvalidArgument("output '", output.name,
                             "' has a string that is not UTF-8; ask for binary_data");
    }
    StrAppend(json, json->size() == before ? "" : ",", JsonQuote(text));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadJsonValues(std::string_view text, const InferInput& input, const PayBytes& pay,
                            std::string* out) {
  const auto where = [&] { return StrCat("input '", Clip(input.name, 256), "': "); };
  if (!IsDatatype(input.datatype)) {
    return InvalidArgument(where(), "there is no datatype '", Clip(input.datatype, 64), "'");
  }
  const ReadOne read = ReaderOf(input.datatype);
  if (read == nullptr) {
    return Unimplemented(where(), input.datatype,
                         " is not written in JSON here; send it as binary data");
  }
  const auto count = CheckedByteSize(DType::kUInt8, input.shape);
  if (!count.ok()) return InvalidArgument(where(), ToStd(count.status().message()));
  TG_RETURN_IF_ERROR(pay(MostBytes(text, input.datatype)));
  JsonReader reader(text);
  int depth = 0;
  int64_t left = *count;
  const auto wrong = [&] {
    return InvalidArgument(where(), "byte ", reader.position(), " of its data is not a value of ",
                           input.datatype);
  };
  while (true) {
    while (reader.Eat('[')) {
      if (++depth > kMaxRank) return wrong();
    }
    if (depth == 0) return wrong();
    if (!reader.Eat(']')) {
      if (left-- == 0) {
        return InvalidArgument(where(), "has more than the ", *count, " values of shape ",
                               ToString(input.shape));
      }
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

absl::Status WriteJsonValues(const InferOutput& output, const PayBytes& pay, std::string* json) {
  if (output.datatype == kBytesDatatype) return WriteTexts(output, pay, json);
  switch (*FromDatatype(output.datatype)) {
    case DType::kBool:
      return WriteNumbers<bool>(output, pay, json);
    case DType::kInt8:
      return WriteNumbers<int8_t>(output, pay, json);
    case DType::kInt16:
      return WriteNumbers<int16_t>(output, pay, json);
    case DType::kInt32:
      return WriteNumbers<int32_t>(output, pay, json);
    case DType::kInt64:
      return WriteNumbers<int64_t>(output, pay, json);
    case DType::kUInt8:
      return WriteNumbers<uint8_t>(output, pay, json);
    case DType::kUInt16:
      return WriteNumbers<uint16_t>(output, pay, json);
    case DType::kUInt32:
      return WriteNumbers<uint32_t>(output, pay, json);
    case DType::kUInt64:
      return WriteNumbers<uint64_t>(output, pay, json);
    case DType::kFloat32:
      return WriteNumbers<float>(output, pay, json);
    case DType::kFloat64:
      return WriteNumbers<double>(output, pay, json);
    default:
      return InvalidArgument("output '", output.name, "' is ", output.datatype,
                             ", which is not written in JSON here; ask for binary_data");
  }
}

}  // namespace telegrad
