// What decodes is mutated as a graph; what does not, and now and then what does, as a message (a
// random field of a random node) or as bytes.
#include "tests/fuzz/wire_mutator.h"

#include <cstring>
#include <random>

#include "engine/wire/graph_codec.h"
#include "telegrad/v1/graph.pb.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/graph_mutator.h"

namespace telegrad::fuzz {
namespace {

constexpr int kTries = 4;

NodeList Decode(const uint8_t* data, size_t size) {
  v1::Graph message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return {};
  Budget budget;
  const auto graph = FromProto(message, &budget);
  return graph.ok() ? ToList(graph->root()) : NodeList();
}

size_t Emit(const v1::Graph& message, uint8_t* out, size_t max_size) {
  const size_t size = message.ByteSizeLong();
  if (size > max_size || !message.SerializeToArray(out, static_cast<int>(max_size))) return 0;
  return size;
}

// Some field of some node, or of its argument, gets another value.
void Damage(v1::Graph* message, std::mt19937_64& rng) {
  using google::protobuf::FieldDescriptor;
  using google::protobuf::Message;
  constexpr uint64_t kEdges[] = {0, 1, 2, 255, 65'535, UINT32_MAX, INT64_MAX, UINT64_MAX};
  Message* at = message;
  if (message->nodes_size() > 0 && rng() % 8 != 0) {
    at = message->mutable_nodes(static_cast<int>(rng() % message->nodes_size()));
  }
  for (int depth = 0; depth < 3; ++depth) {
    const auto* fields = at->GetDescriptor();
    if (fields->field_count() == 0) return;
    const FieldDescriptor* field = fields->field(static_cast<int>(rng() % fields->field_count()));
    const auto* access = at->GetReflection();
    const uint64_t value = rng() % 2 == 0 ? kEdges[rng() % std::size(kEdges)] : rng() % 64;
    const bool list = field->is_repeated();
    const int n = list ? access->FieldSize(*at, field) : 0;
    const bool add = list && (n == 0 || rng() % 3 == 0);
    const int i = n > 0 ? static_cast<int>(rng() % n) : 0;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_UINT32: {
        const auto v = static_cast<uint32_t>(value);
        if (!list) return access->SetUInt32(at, field, v);
        return add ? access->AddUInt32(at, field, v) : access->SetRepeatedUInt32(at, field, i, v);
      }
      case FieldDescriptor::CPPTYPE_UINT64:
        if (!list) return access->SetUInt64(at, field, value);
        return add ? access->AddUInt64(at, field, value)
                   : access->SetRepeatedUInt64(at, field, i, value);
      case FieldDescriptor::CPPTYPE_INT64: {
        const auto v = static_cast<int64_t>(value);
        if (!list) return access->SetInt64(at, field, v);
        return add ? access->AddInt64(at, field, v) : access->SetRepeatedInt64(at, field, i, v);
      }
      case FieldDescriptor::CPPTYPE_DOUBLE:
        if (!list) return access->SetDouble(at, field, static_cast<double>(value));
        return;
      case FieldDescriptor::CPPTYPE_MESSAGE:
        if (list && n == 0) return;
        at =
            list ? access->MutableRepeatedMessage(at, field, i) : access->MutableMessage(at, field);
        break;
      default:
        return;
    }
  }
}

size_t Write(UOp root, std::mt19937_64& rng, uint8_t* out, size_t max_size) {
  if (!root.valid()) return 0;
  v1::Graph message;
  ToProto(root, &message);
  if (rng() % kDamageOneIn == 0) Damage(&message, rng);
  return Emit(message, out, max_size);
}

}  // namespace
}  // namespace telegrad::fuzz

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  using namespace telegrad;
  std::mt19937_64 rng(seed);
  const fuzz::NodeList list = rng() % 64 == 0 ? fuzz::NodeList() : fuzz::Decode(data, size);
  if (rng() % (4 * fuzz::kDamageOneIn) == 0) return LLVMFuzzerMutate(data, size, max_size);
  for (int i = 0; i < fuzz::kTries; ++i) {
    Graph graph;
    const UOp root = fuzz::Mutate(list, rng(), &graph);
    if (const size_t n = fuzz::Write(root, rng, data, max_size); n > 0) return n;
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* data1, size_t size1,
                                            const uint8_t* data2, size_t size2, uint8_t* out,
                                            size_t max_size, unsigned int seed) {
  using namespace telegrad;
  std::mt19937_64 rng(seed);
  Graph graph;
  const UOp root =
      fuzz::Splice(fuzz::Decode(data1, size1), fuzz::Decode(data2, size2), rng(), &graph);
  return fuzz::Write(root, rng, out, max_size);
}
