// Mutants are made from the methods' own descriptors, so that a new row, message or field is fuzzed
// without a word here: requests of random fields, set to what is likely to mean something (handles,
// hashes, graphs, tokens, the ends of the number types), in sequences that grow, shrink and repeat.
#include "tests/fuzz/service_input.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>

#include "engine/ir/content_hash.h"
#include "engine/wire/graph_bytes.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/dynamic_message.h"
#include "telegrad/v1/compute.pb.h"
#include "tests/fuzz/fuzz.h"
#include "tests/server/double_graph.h"

namespace telegrad::fuzz {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::MessageFactory;
using google::protobuf::Reflection;

constexpr std::string_view kOperations = "/telegrad.v1.Compute/Execute";  // where most happens
constexpr size_t kMaxMessages = 24;
constexpr int kMaxDepth = 4;

const Message& Prototype(const std::string& path) {
  std::string name = path.substr(1);
  std::replace(name.begin(), name.end(), '/', '.');
  const auto* method = DescriptorPool::generated_pool()->FindMethodByName(name);
  FUZZ_CHECK(method != nullptr);
  return *MessageFactory::generated_factory()->GetPrototype(method->input_type());
}

class Maker {
 public:
  explicit Maker(unsigned seed) : random_(seed) {}

  uint64_t Below(uint64_t n) { return random_() % n; }

  void Fill(Message* message, int depth) {
    const Descriptor* type = message->GetDescriptor();
    for (int i = 0; i < type->field_count(); ++i) {
      const FieldDescriptor* field = type->field(i);
      if (field->name() == "handles" && Below(2) == 0) {  // those of the prelude
        message->GetReflection()->AddUInt64(message, field, 1);
        message->GetReflection()->AddUInt64(message, field, 2);
        continue;
      }
      if ((field->name() == "devices" || field->name() == "variables") && Below(8) != 0) continue;
      // One of a oneof, and half of the rest.
      const auto* one_of = field->real_containing_oneof();
      if (Below(one_of != nullptr ? static_cast<uint64_t>(one_of->field_count()) : 2) != 0)
        continue;
      for (uint64_t n = field->is_repeated() ? Below(4) : 1; n > 0; --n) {
        Set(message, field, depth);
      }
    }
  }

  // The first message of a stream, mostly a good one: of a new session or of the one that is open.
  void Open(Message* open) {
    const Reflection* access = open->GetReflection();
    const auto field = [&](const char* name) {
      return open->GetDescriptor()->FindFieldByName(name);
    };
    if (Below(16) == 0) Fill(open, 1);
    if (field("protocol") != nullptr) access->SetUInt32(open, field("protocol"), 1);
    if (field("resumable") != nullptr) access->SetBool(open, field("resumable"), Below(4) == 0);
    if (field("protocol") == nullptr || Below(8) == 0) {
      access->SetString(open, field("token"), std::string(kTokenMark));
      access->SetUInt64(open, field("epoch"), kEpochMark);
    }
  }

  // Another value for some field somewhere in the message.
  void Change(Message* message) {
    for (int depth = 0; depth < kMaxDepth; ++depth) {
      const Descriptor* type = message->GetDescriptor();
      if (type->field_count() == 0) return;
      const Reflection* access = message->GetReflection();
      std::vector<const FieldDescriptor*> set;
      access->ListFields(*message, &set);
      const FieldDescriptor* field =
          !set.empty() && Below(4) != 0
              ? set[Below(set.size())]
              : type->field(static_cast<int>(Below(static_cast<uint64_t>(type->field_count()))));
      const bool inner = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
      if (inner && !field->is_repeated() && access->HasField(*message, field) && Below(8) != 0) {
        message = access->MutableMessage(message, field);
        continue;
      }
      if (field->is_repeated() && Below(3) == 0) access->ClearField(message, field);
      return Set(message, field, depth);
    }
  }

 private:
  uint64_t Number() {
    constexpr uint64_t kEnds[] = {INT32_MAX,  UINT32_MAX,        uint64_t{1} << 32,
                                  INT64_MAX,  uint64_t{1} << 63, UINT64_MAX,
                                  kEpochMark, uint64_t{1} << 20, 4096};
    return Below(4) == 0 ? kEnds[Below(std::size(kEnds))] : Below(6);
  }
  std::string Text() {
    switch (Below(8)) {
      case 0:
        return std::string(kTokenMark);
      case 1:
        return std::string(ContentHash(doubled_.root()).view());
      case 2:
        return "CPU:0";
      case 3:
        return "onnx";
      case 4:
        return "../../etc/passwd";
      case 5:
        return GraphBytes(doubled_.root());
      case 6:
        return "";
      default: {
        std::string bytes(Below(40), '\0');
        for (char& c : bytes) c = static_cast<char>(random_());
        return bytes;
      }
    }
  }
  void Set(Message* message, const FieldDescriptor* field, int depth) {
    const Reflection* access = message->GetReflection();
    const bool list = field->is_repeated();
    const uint64_t n = field->name() == "epoch" && Below(8) != 0 ? kEpochMark : Number();
    switch (field->cpp_type()) {
#define SCALAR(TYPE, Name, type)                                          \
  case FieldDescriptor::CPPTYPE_##TYPE:                                   \
    return list ? access->Add##Name(message, field, static_cast<type>(n)) \
                : access->Set##Name(message, field, static_cast<type>(n));
      SCALAR(INT32, Int32, int32_t)
      SCALAR(INT64, Int64, int64_t)
      SCALAR(UINT32, UInt32, uint32_t)
      SCALAR(UINT64, UInt64, uint64_t)
      SCALAR(FLOAT, Float, float)
      SCALAR(DOUBLE, Double, double)
      SCALAR(BOOL, Bool, bool)
      SCALAR(ENUM, EnumValue, int)
#undef SCALAR
      case FieldDescriptor::CPPTYPE_STRING: {
        std::string text = Text();
        if (field->name() == "hash" && Below(8) != 0) text = ContentHash(doubled_.root()).view();
        if (field->name() == "token" && Below(8) != 0) text = kTokenMark;
        if (field->type() == FieldDescriptor::TYPE_STRING && text != "CPU:0") text = "onnx";
        return list ? access->AddString(message, field, text)
                    : access->SetString(message, field, text);
      }
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        Message* inner =
            list ? access->AddMessage(message, field) : access->MutableMessage(message, field);
        if (depth < kMaxDepth) Fill(inner, depth + 1);
        return;
      }
    }
  }

  std::mt19937_64 random_;
  const FrozenGraph doubled_ = DoubleGraph(4);
};

// Operations are numbered upwards, or nothing after the first would be looked at.
void Number(ServiceInput* input, const Message& prototype) {
  const FieldDescriptor* id = prototype.GetDescriptor()->FindFieldByName("op_id");
  if (id == nullptr) return;
  for (size_t i = 0; i < input->messages.size(); ++i) {
    const std::unique_ptr<Message> message(prototype.New());
    if (!message->ParseFromString(input->messages[i])) continue;
    message->GetReflection()->SetUInt64(message.get(), id, i + 1);
    input->messages[i] = message->SerializeAsString();
  }
}

// The field that only the first message of a stream may have; null where there is none such.
const FieldDescriptor* FirstField(const Message& prototype) {
  const Descriptor* type = prototype.GetDescriptor();
  const FieldDescriptor* open = type->FindFieldByName("open");
  return open != nullptr ? open : type->FindFieldByName("attach");
}

// Likely to be taken: with the field of a first message only there, and data where some is wanted.
std::string Request(Maker& maker, const Message& prototype, bool first) {
  const std::unique_ptr<Message> message(prototype.New());
  const Reflection* access = message->GetReflection();
  const Descriptor* type = message->GetDescriptor();
  const FieldDescriptor* opens = FirstField(prototype);
  maker.Fill(message.get(), 0);
  if (opens == nullptr) return message->SerializeAsString();
  if (first) {
    message->Clear();
    maker.Open(access->MutableMessage(message.get(), opens));
  } else {
    const auto* ops = opens->containing_oneof();
    const FieldDescriptor* op = opens;
    while (op == opens)
      op = ops->field(static_cast<int>(maker.Below(static_cast<uint64_t>(ops->field_count()))));
    Message* inner = access->MutableMessage(message.get(), op);
    inner->Clear();
    maker.Fill(inner, 1);
  }
  const FieldDescriptor* data = type->FindFieldByName("data");
  std::vector<const FieldDescriptor*> set;
  access->ListFields(*message, &set);
  const bool wanted = std::ranges::any_of(set, [](const FieldDescriptor* field) {
    return field->name() == "write" || field->name() == "put" || field->name() == "import" ||
           field->name() == "upload";
  });
  if (!wanted && maker.Below(16) != 0) access->ClearField(message.get(), data);
  return message->SerializeAsString();
}

// A session with two buffers and a graph that can be run on them.
std::vector<std::string> Prelude() {
  std::vector<std::string> out;
  v1::ExecuteRequest open, put;
  open.mutable_open()->set_protocol(1);
  out.push_back(open.SerializeAsString());
  for (const uint64_t handle : {1, 2}) {
    v1::ExecuteRequest alloc;
    alloc.mutable_alloc()->set_handle(handle);
    alloc.mutable_alloc()->set_bytes(16);
    out.push_back(alloc.SerializeAsString());
  }
  put.mutable_put();
  put.set_data(GraphBytes(DoubleGraph(4).root()));
  out.push_back(put.SerializeAsString());
  return out;
}

// What opens the stream stands at its beginning, and only there; nothing is no message at all.
void Repair(Maker& maker, ServiceInput* input, const Message& prototype) {
  const FieldDescriptor* opens = FirstField(prototype);
  if (opens == nullptr) return;
  const auto ends_it = [&](const std::string& bytes) {
    const std::unique_ptr<Message> message(prototype.New());
    return !message->ParseFromString(bytes) || message->GetReflection()->HasField(*message, opens);
  };
  std::erase_if(input->messages, ends_it);
  input->messages.insert(input->messages.begin(), Request(maker, prototype, /*first=*/true));
}

void Mutate(Maker& maker, ServiceInput* input) {
  const auto paths = ServicePaths();
  if (std::ranges::find(paths, input->path) == paths.end() || maker.Below(64) == 0) {
    const bool any = maker.Below(2) == 0;
    *input = {.path = std::string(any ? paths[maker.Below(paths.size())] : kOperations),
              .flags = 0,
              .messages = {}};
    if (input->path == kOperations) input->messages = Prelude();
  }
  const Message& prototype = Prototype(input->path);
  std::vector<std::string>& messages = input->messages;
  if (messages.empty()) messages.push_back(Request(maker, prototype, /*first=*/true));
  // Mostly not the first, without which a stream takes none of the others.
  const auto any = [&] {
    const uint64_t from = messages.size() > 1 && maker.Below(32) != 0 ? 1 : 0;
    return messages.begin() + static_cast<ptrdiff_t>(from + maker.Below(messages.size() - from));
  };
  switch (maker.Below(8)) {
    case 0:
      input->flags = static_cast<uint8_t>(maker.Below(4));
      break;
    case 1:
      if (messages.size() > 1) messages.erase(any());
      break;
    case 2: {
      const std::string copy = *any();
      messages.insert(any(), copy);
      break;
    }
    case 3:
    case 4:
      messages.push_back(Request(maker, prototype, /*first=*/false));
      break;
    case 5:  // as bytes
      if (maker.Below(4) == 0) {
        std::string& bytes = *any();
        const size_t size = bytes.size();
        bytes.resize(size + 16);
        bytes.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(bytes.data()), size, size + 16));
        return;
      }
      [[fallthrough]];
    default: {
      std::string& bytes = *any();
      const std::unique_ptr<Message> message(prototype.New());
      if (!message->ParseFromString(bytes)) break;
      maker.Change(message.get());
      bytes = message->SerializeAsString();
    }
  }
  if (messages.size() > kMaxMessages) messages.resize(kMaxMessages);
  if (maker.Below(16) != 0) Repair(maker, input, prototype);
  if (maker.Below(16) != 0) Number(input, prototype);
}

}  // namespace

ServiceInput ParseInput(std::span<const uint8_t> bytes) {
  ServiceInput input;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t line = text.find('\n');
  if (line == std::string_view::npos || line + 1 >= text.size()) return input;
  input.path = text.substr(0, line);
  input.flags = static_cast<uint8_t>(text[line + 1]);
  for (size_t at = line + 2; at + 2 <= text.size();) {
    const size_t length = bytes[at] | size_t{bytes[at + 1]} << 8;
    at += 2;
    if (length > text.size() - at) break;
    input.messages.emplace_back(text.substr(at, length));
    at += length;
  }
  return input;
}

std::string Serialize(const ServiceInput& input) {
  std::string out = input.path + "\n";
  out.push_back(static_cast<char>(input.flags));
  for (const std::string& message : input.messages) {
    if (message.size() > UINT16_MAX) continue;
    out.push_back(static_cast<char>(message.size() & 0xff));
    out.push_back(static_cast<char>(message.size() >> 8));
    out += message;
  }
  return out;
}

}  // namespace telegrad::fuzz

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned seed) {
  using namespace telegrad::fuzz;
  ServiceInput input = ParseInput({data, size});
  Maker maker(seed);
  for (uint64_t n = 1 + maker.Below(4); n > 0; --n) Mutate(maker, &input);
  const std::string out = Serialize(input);
  if (out.size() > max_size) return size;
  std::memcpy(data, out.data(), out.size());
  return out.size();
}
