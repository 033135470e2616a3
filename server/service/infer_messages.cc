// A request's head, all but its raw contents, is what protobuf makes objects of; it is limited, so
// that a small message does not become a large one in memory.
#include "server/service/infer_messages.h"

#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include "engine/base/status.h"
#include "engine/base/utf8.h"
#include "engine/wire/envelope.h"
#include "server/service/convert.h"
#include "server/serving/bytes_tensor.h"
#include "server/serving/datatype.h"
#include "server/serving/sequences.h"

namespace telegrad {
namespace {

constexpr uint64_t kMostHeadBytes = 8 << 20;
constexpr int kMostTensors = 1024;    // inputs, outputs, and raw contents of one request
constexpr int64_t kObjectFactor = 4;  // objects take more than the bytes that they are made of
constexpr int kInputsField = 5, kOutputsField = 6, kParametersField = 4;
constexpr int kRawInputField = 7, kRawOutputField = 6, kInferResponseField = 2;
constexpr size_t kCopiedBytes = 4096;  // contents up to this are copied behind the head

constexpr std::string_view kRegionParameter = "shared_memory_region";
constexpr std::string_view kRegionBytesParameter = "shared_memory_byte_size";
constexpr std::string_view kRegionOffsetParameter = "shared_memory_offset";

// What a request is kept alive by: the transport's memory, and what its typed contents became.
struct RequestMemory {
  explicit RequestMemory(const grpc::ByteBuffer& bytes) : received(bytes) {}
  ReceivedMessage received;
  std::vector<std::unique_ptr<std::string>> converted;
  Reservation paid;  // for what was converted
};

// The objects of a small message are on the stack.
class HeadArena {
 public:
  google::protobuf::Arena* get() { return &arena_; }

 private:
  static google::protobuf::ArenaOptions In(std::span<char> block) {
    google::protobuf::ArenaOptions options;
    options.initial_block = block.data();
    options.initial_block_size = block.size();
    return options;
  }

  alignas(std::max_align_t) char block_[2048];
  google::protobuf::Arena arena_{In(block_)};
};

template <typename To, typename From>
absl::Status AppendAs(const From& from, std::string* out) {
  out->reserve(static_cast<size_t>(from.size()) * sizeof(To));
  for (const auto value : from) {
    if constexpr (sizeof(To) < sizeof(value) && !std::is_floating_point_v<To>) {
      if (value < std::numeric_limits<To>::min() || value > std::numeric_limits<To>::max()) {
        return InvalidArgument("the value ", value, " is out of the datatype's range");
      }
    }
    const To narrow = static_cast<To>(value);
    char bytes[sizeof(To)];
    std::memcpy(bytes, &narrow, sizeof(To));
    out->append(bytes, sizeof(To));
  }
  return absl::OkStatus();
}

// How many of the fields are set, whatever they are.
int FieldsUsed(const inference::InferTensorContents& c) {
  int used = 0;
  for (const int n : {c.bool_contents_size(), c.int_contents_size(), c.int64_contents_size(),
                      c.uint_contents_size(), c.uint64_contents_size(), c.fp32_contents_size(),
                      c.fp64_contents_size(), c.bytes_contents_size()}) {
    used += n > 0 ? 1 : 0;
  }
  return used;
}

absl::Status FromTyped(const inference::InferTensorContents& c, std::string_view datatype,
                       std::string* out) {
  if (FieldsUsed(c) > 1) return InvalidArgument("has contents of several types, expected one");
  if (datatype == kBytesDatatype) {
    if (c.bytes_contents_size() == 0 && FieldsUsed(c) > 0) {
      return InvalidArgument("has contents in a field that is not that of datatype BYTES");
    }
    for (const std::string& element : c.bytes_contents()) AppendElement(element, out);
    return absl::OkStatus();
  }
  const auto dtype = FromDatatype(datatype);
  absl::Status status = absl::OkStatus();
  bool fits = true;
  const int all = c.bool_contents_size() + c.int_contents_size() + c.int64_contents_size() +
                  c.uint_contents_size() + c.uint64_contents_size() + c.fp32_contents_size() +
                  c.fp64_contents_size();
  const auto take = [&]<typename To>(const auto& from, To) {
    fits = from.size() == all;
    if (fits) status = AppendAs<To>(from, out);
  };
  if (!dtype) {
    return Unimplemented("has datatype ", datatype.substr(0, 64), ", which no model here takes");
  }
  switch (*dtype) {
    case DType::kBool:
      take(c.bool_contents(), uint8_t{});
      break;
    case DType::kInt8:
      take(c.int_contents(), int8_t{});
      break;
    case DType::kInt16:
      take(c.int_contents(), int16_t{});
      break;
    case DType::kInt32:
      take(c.int_contents(), int32_t{});
      break;
    case DType::kInt64:
      take(c.int64_contents(), int64_t{});
      break;
    case DType::kUInt8:
      take(c.uint_contents(), uint8_t{});
      break;
    case DType::kUInt16:
      take(c.uint_contents(), uint16_t{});
      break;
    case DType::kUInt32:
      take(c.uint_contents(), uint32_t{});
      break;
    case DType::kUInt64:
      take(c.uint64_contents(), uint64_t{});
      break;
    case DType::kFloat32:
      take(c.fp32_contents(), float{});
      break;
    case DType::kFloat64:
      take(c.fp64_contents(), double{});
      break;
    default:
      return InvalidArgument("has datatype ", datatype, ", which has raw contents only");
  }
  if (!fits) {
    return InvalidArgument("has contents in a field that is not that of datatype ", datatype);
  }
  return status;
}

using Parameters = google::protobuf::Map<std::string, inference::InferParameter>;

absl::StatusOr<int64_t> IntParameter(const std::string& name, const inference::InferParameter& p) {
  using P = inference::InferParameter;
  if (p.parameter_choice_case() == P::kInt64Param) return p.int64_param();
  if (p.parameter_choice_case() == P::kUint64Param && p.uint64_param() <= INT64_MAX) {
    return static_cast<int64_t>(p.uint64_param());
  }
  return InvalidArgument("parameter '", Clip(name, 64), "' is expected to be an integer");
}

absl::Status ReadSequenceId(const inference::InferParameter& value, SequenceMark* out) {
  using P = inference::InferParameter;
  if (value.parameter_choice_case() == P::kStringParam) {
    return SetSequenceText(value.string_param(), out);
  }
  if (value.parameter_choice_case() == P::kUint64Param) {
    out->number = value.uint64_param();
  } else {
    TG_ASSIGN_OR_RETURN(const int64_t number, IntParameter("sequence_id", value));
    out->number = static_cast<uint64_t>(number);
  }
  SetSequenceNumber(out->number, out);
  return absl::OkStatus();
}

absl::Status ReadParameters(const Parameters& parameters, ReceivedInfer* out) {
  for (const auto& [name, value] : parameters) {
    if (name == "priority" || name == "timeout") {
      TG_ASSIGN_OR_RETURN(const int64_t number, IntParameter(name, value));
      if (number < 0) return InvalidArgument("parameter '", name, "' is ", number);
      if (name == "priority") {
        out->request.priority = static_cast<uint64_t>(number);
      } else {
        out->request.timeout_us = number;
      }
    } else if (name == "triton_enable_empty_final_response") {
      out->final_response = value.bool_param();
    } else if (name == "sequence_id") {
      TG_RETURN_IF_ERROR(ReadSequenceId(value, &out->request.sequence));
    } else if (name == "sequence_start" || name == "sequence_end") {
      if (value.parameter_choice_case() != inference::InferParameter::kBoolParam) {
        return InvalidArgument("parameter '", name, "' is expected to be true or false");
      }
      SequenceMark& mark = out->request.sequence;
      (name == "sequence_start" ? mark.start : mark.end) = value.bool_param();
    } else if (name.starts_with("triton_")) {
      return InvalidArgument("parameter '", Clip(name, 64), "' is reserved and not known here");
    }
  }
  return absl::OkStatus();
}

// Where a tensor is in shared memory, if it is.
absl::StatusOr<std::optional<RegionPart>> RegionOf(const Parameters& parameters) {
  const auto region = parameters.find(std::string(kRegionParameter));
  if (region == parameters.end()) return std::nullopt;
  RegionPart out{.region = region->second.string_param()};
  const auto bytes = parameters.find(std::string(kRegionBytesParameter));
  if (bytes == parameters.end()) {
    return InvalidArgument("is in a shared memory region without a shared_memory_byte_size");
  }
  TG_ASSIGN_OR_RETURN(out.bytes, IntParameter(bytes->first, bytes->second));
  if (const auto offset = parameters.find(std::string(kRegionOffsetParameter));
      offset != parameters.end()) {
    TG_ASSIGN_OR_RETURN(out.offset, IntParameter(offset->first, offset->second));
  }
  return out;
}

absl::Status CheckCounts(const std::string& head) {
  for (const int field : {kInputsField, kOutputsField, kParametersField}) {
    TG_ASSIGN_OR_RETURN(const int64_t count, CountFields(head, field));
    if (count > kMostTensors) {
      return ResourceExhausted("the request has ", count,
                               " inputs, outputs or parameters; the limit is ", kMostTensors);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadInput(inference::ModelInferRequest::InferInputTensor& input, bool raw,
                       std::vector<std::vector<ByteSpan>>& payloads, size_t* next,
                       RequestMemory* memory, InferInput* out) {
  out->name = std::move(*input.mutable_name());
  out->datatype = std::move(*input.mutable_datatype());
  out->shape.assign(input.shape().begin(), input.shape().end());
  TG_ASSIGN_OR_RETURN(out->region, RegionOf(input.parameters()));
  if (out->region) {
    if (FieldsUsed(input.contents()) == 0) return absl::OkStatus();
    return InvalidArgument("has contents although it is in a shared memory region");
  }
  if (raw) {
    if (FieldsUsed(input.contents()) > 0) {
      return InvalidArgument("has contents although the request has raw_input_contents");
    }
    if (*next >= payloads.size()) {
      return InvalidArgument("has no raw_input_contents: the request has ", payloads.size());
    }
    out->pieces = std::move(payloads[(*next)++]);
    for (const ByteSpan& piece : out->pieces) out->bytes += static_cast<int64_t>(piece.size());
    return absl::OkStatus();
  }
  if (!IsDatatype(out->datatype)) {
    return InvalidArgument("there is no datatype '", Clip(out->datatype, 64), "'");
  }
  auto bytes = std::make_unique<std::string>();
  TG_RETURN_IF_ERROR(FromTyped(input.contents(), out->datatype, bytes.get()));
  out->bytes = static_cast<int64_t>(bytes->size());
  out->pieces = {{reinterpret_cast<const uint8_t*>(bytes->data()), bytes->size()}};
  memory->converted.push_back(std::move(bytes));
  return absl::OkStatus();
}

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

size_t VarintBytes(uint64_t value) {
  size_t n = 1;
  for (; value >= 0x80; value >>= 7) ++n;
  return n;
}

grpc::Slice SliceOf(const std::string& bytes) { return grpc::Slice(bytes); }

// The slice's memory is that of `output`, which is kept until the transport has sent it.
grpc::Slice SliceOf(const InferOutput& output) {
  auto* const owner = new std::shared_ptr<const void>(output.owner);
  return grpc::Slice(
      const_cast<void*>(output.data), static_cast<size_t>(output.bytes),
      [](void* kept) { delete static_cast<std::shared_ptr<const void>*>(kept); }, owner);
}

void WriteRegion(const RegionPart& part, inference::ModelInferResponse::InferOutputTensor* to) {
  const auto add = [&](std::string_view name) -> inference::InferParameter& {
    return (*to->mutable_parameters())[std::string(name)];
  };
  add(kRegionParameter).set_string_param(part.region);
  add(kRegionBytesParameter).set_int64_param(part.bytes);
  if (part.offset != 0) add(kRegionOffsetParameter).set_int64_param(part.offset);
}

void WriteHead(const InferResult& result, const std::string& id,
               inference::ModelInferResponse* head) {
  head->set_model_name(result.model);
  head->set_model_version(result.version);
  head->set_id(id);
  for (const InferOutput& output : result.outputs) {
    auto* to = head->add_outputs();
    to->set_name(output.name);
    to->set_datatype(std::string(output.datatype));
    to->mutable_shape()->Add(output.shape.begin(), output.shape.end());
    if (output.region) WriteRegion(*output.region, to);
  }
}

// An output's contents with their field's tag and length.
uint64_t RawBytes(const InferOutput& output) {
  const auto bytes = static_cast<uint64_t>(output.bytes);
  return 1 + VarintBytes(bytes) + bytes;
}

// Room for those of the first outputs that are copied behind the head.
size_t CopiedBytes(const InferResult& result) {
  size_t out = 0;
  for (const InferOutput& output : result.outputs) {
    if (output.bytes > static_cast<int64_t>(kCopiedBytes)) break;
    out += RawBytes(output);
  }
  return out;
}

// A message of which `begin` is all but the raw contents, with these.
grpc::ByteBuffer Assemble(std::string begin, const InferResult& result) {
  std::vector<grpc::Slice> slices;
  std::string bytes = std::move(begin);
  for (const InferOutput& output : result.outputs) {
    AppendVarint(kRawOutputField << 3 | 2, &bytes);
    AppendVarint(static_cast<uint64_t>(output.bytes), &bytes);
    if (output.bytes <= static_cast<int64_t>(kCopiedBytes)) {
      bytes.append(static_cast<const char*>(output.data), static_cast<size_t>(output.bytes));
      continue;
    }
    slices.push_back(SliceOf(std::exchange(bytes, {})));
    slices.push_back(SliceOf(output));
  }
  if (slices.empty()) {
    const grpc::Slice whole = SliceOf(bytes);
    return grpc::ByteBuffer(&whole, 1);
  }
  if (!bytes.empty()) slices.push_back(SliceOf(bytes));
  return grpc::ByteBuffer(slices.data(), slices.size());
}

}  // namespace

absl::StatusOr<ReceivedInfer> ToInferRequest(const grpc::ByteBuffer& bytes, Tenant& tenant) {
  auto memory = std::make_shared<RequestMemory>(bytes);
  Payloads split;
  TG_RETURN_IF_ERROR(
      SplitPayloads(memory->received.pieces, kRawInputField, kMostHeadBytes, kMostTensors, &split));
  TG_RETURN_IF_ERROR(CheckCounts(split.head));
  ReceivedInfer out;
  TG_ASSIGN_OR_RETURN(
      out.request.paid,
      Reservation::Take(tenant.accounts.shared(Quota::kHostStaging),
                        static_cast<int64_t>(bytes.Length()) +
                            kObjectFactor * static_cast<int64_t>(split.head.size())));
  HeadArena arena;
  auto& message =
      *google::protobuf::Arena::CreateMessage<inference::ModelInferRequest>(arena.get());
  if (!message.ParseFromString(split.head)) {
    return InvalidArgument("malformed message: not a ", message.GetTypeName());
  }
  TG_RETURN_IF_ERROR(CheckRequestId(message.id()));
  out.id = std::move(*message.mutable_id());
  out.request.model = std::move(*message.mutable_model_name());
  out.request.version = std::move(*message.mutable_model_version());
  TG_RETURN_IF_ERROR(ReadParameters(message.parameters(), &out));
  const bool raw = !split.payloads.empty();
  size_t next = 0;
  for (auto& input : *message.mutable_inputs()) {
    InferInput& to = out.request.inputs.emplace_back();
    const absl::Status status = ReadInput(input, raw, split.payloads, &next, memory.get(), &to);
    if (!status.ok()) {
      return absl::Status(status.code(),
                          StrCat("input '", Clip(to.name, 256), "' ", ToStd(status.message())));
    }
  }
  int64_t converted = 0;
  for (const auto& content : memory->converted) {
    converted += static_cast<int64_t>(content->size());
  }
  TG_ASSIGN_OR_RETURN(memory->paid,
                      Reservation::Take(tenant.accounts.shared(Quota::kHostStaging), converted));
  if (next != split.payloads.size()) {
    return InvalidArgument("the request has ", split.payloads.size(), " raw_input_contents for ",
                           next, " inputs");
  }
  for (const auto& output : message.outputs()) {
    WantedOutput& to = out.request.outputs.emplace_back();
    to.name = output.name();
    auto region = RegionOf(output.parameters());
    if (!region.ok()) {
      return InvalidArgument("output '", Clip(to.name, 256), "' ",
                             ToStd(region.status().message()));
    }
    to.region = *std::move(region);
    if (const auto it = output.parameters().find("classification");
        it != output.parameters().end()) {
      TG_ASSIGN_OR_RETURN(to.classes, IntParameter(it->first, it->second));
      if (to.classes < 1) return InvalidArgument("classification is ", to.classes);
    }
  }
  out.request.owner = std::move(memory);
  return out;
}

grpc::ByteBuffer ToMessage(const InferResult& result, const std::string& id) {
  HeadArena arena;
  auto* head = google::protobuf::Arena::CreateMessage<inference::ModelInferResponse>(arena.get());
  WriteHead(result, id, head);
  std::string bytes;
  bytes.reserve(head->ByteSizeLong() + CopiedBytes(result));
  head->AppendToString(&bytes);
  return Assemble(std::move(bytes), result);
}

grpc::ByteBuffer ToStreamMessage(const InferResult& result, const std::string& id) {
  HeadArena arena;
  auto* head = google::protobuf::Arena::CreateMessage<inference::ModelInferResponse>(arena.get());
  WriteHead(result, id, head);
  (*head->mutable_parameters())["triton_final_response"].set_bool_param(true);
  uint64_t length = head->ByteSizeLong();
  for (const InferOutput& output : result.outputs) length += RawBytes(output);
  std::string bytes;
  AppendVarint(kInferResponseField << 3 | 2, &bytes);
  AppendVarint(length, &bytes);
  head->AppendToString(&bytes);
  return Assemble(std::move(bytes), result);
}

grpc::ByteBuffer ToStreamMessage(const absl::Status& error, const std::string& model,
                                 const std::string& id) {
  inference::ModelStreamInferResponse response;
  response.set_error_message(AsUtf8(ToStd(error.message())));
  auto* inner = response.mutable_infer_response();
  inner->set_model_name(AsUtf8(model));
  inner->set_id(AsUtf8(id));
  (*inner->mutable_parameters())["triton_final_response"].set_bool_param(true);
  const grpc::Slice slice(response.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace telegrad
