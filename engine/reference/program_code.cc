// Decoding: every value gets a place in the frame, which for constants and variables is filled at
// once; addresses become parts of their users; each RANGE and ROLE gets the position of its end.
#include "engine/reference/program_code.h"

#include <utility>

#include "engine/base/status.h"

namespace telegrad::reference::internal {
namespace {

constexpr int64_t kMaxFrameLanes = int64_t{1} << 26;
constexpr int64_t kMaxOwnElements = int64_t{1} << 26;
constexpr int64_t kMaxBarriers = 4096;

bool IsParallel(AxisType type) {
  return type == AxisType::kGroup || type == AxisType::kLocal || type == AxisType::kWarp;
}

class Decoder {
 public:
  Decoder(const Program& program, std::span<const int64_t> variables, Code* code)
      : program_(program),
        g_(*program.graph),
        variables_(variables),
        code_(*code),
        place_(g_.size(), 0),
        memory_of_(g_.size(), 0),
        opened_(g_.size(), 0) {}

  absl::Status Run() {
    code_.program = &program_;
    for (size_t slot = 0; slot < program_.arguments.size(); ++slot) {
      const Program::Argument& argument = program_.arguments[slot];
      code_.memories.push_back({.kind = Memory::Kind::kArgument,
                                .slot = static_cast<int64_t>(slot),
                                .dtype = argument.dtype,
                                .elements = argument.elements});
    }
    for (uint32_t i = 0; i < program_.order.size(); ++i) {
      TG_RETURN_IF_ERROR(Node(i, g_.at(program_.order[i])));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Node(uint32_t position, UOp u) {
    switch (u.op()) {
      case Op::kParam:
        memory_of_[u.id()] = static_cast<uint32_t>(u.slot());
        return absl::OkStatus();
      case Op::kAfter:
        memory_of_[u.id()] = memory_of_[u.src(0).id()];
        return absl::OkStatus();
      case Op::kIndex:  // looked at by its users
        return absl::OkStatus();
      case Op::kBuffer:
      case Op::kMBarrier:
        return Own(position, u);
      case Op::kEnd: {
        Instruction& open = code_.instructions[opened_[u.src(0).id()]];
        if (open.op == Op::kRange && IsParallel(open.axis)) return absl::OkStatus();
        code_.instructions.push_back({.op = Op::kEnd, .position = position, .node = u.id()});
        code_.instructions[opened_[u.src(0).id()]].exit =
            static_cast<uint32_t>(code_.instructions.size());
        return absl::OkStatus();
      }
      default:
        break;
    }
    const int64_t lanes = u.dtype() == DType::kVoid ? 0 : NumElements(u.shape());
    if (static_cast<int64_t>(code_.frame.size()) + lanes > kMaxFrameLanes) {
      return ResourceExhausted("program ", program_.name, " has more than ", kMaxFrameLanes,
                               " lanes");
    }
    const auto out = static_cast<uint32_t>(code_.frame.size());
    place_[u.id()] = out;
    code_.frame.resize(code_.frame.size() + static_cast<size_t>(lanes));
    if (u.op() == Op::kConst) {
      code_.frame[out] = LaneOfConst(u.dtype(), u.const_word());
      return absl::OkStatus();
    }
    if (u.op() == Op::kIota) {
      for (int64_t i = 0; i < lanes; ++i) code_.frame[out + i] = LaneOfIndex(u.dtype(), i);
      return absl::OkStatus();
    }
    if (u.op() == Op::kVar && u.num_src() == 0) return Variable(position, u);
    Instruction in{.op = u.op(), .position = position, .node = u.id(), .out = out};
    in.lanes = static_cast<uint32_t>(lanes);
    in.type = u.dtype();
    opened_[u.id()] = static_cast<uint32_t>(code_.instructions.size());
    TG_RETURN_IF_ERROR(Operands(u, &in));
    code_.instructions.push_back(in);
    if (u.op() == Op::kRange && IsParallel(in.axis)) Parallel(u, in.axis);
    return absl::OkStatus();
  }

  absl::Status Own(uint32_t position, UOp u) {
    const int64_t elements = NumElements(u.shape());
    own_elements_ += elements;
    if (own_elements_ > kMaxOwnElements) {
      return ResourceExhausted("program ", program_.name, " has more than ", kMaxOwnElements,
                               " elements of its own memory");
    }
    memory_of_[u.id()] = static_cast<uint32_t>(code_.memories.size());
    Memory& m = code_.memories.emplace_back();
    m = {.kind = Memory::Kind::kPhases, .dtype = u.dtype(), .elements = elements};
    if (u.op() == Op::kMBarrier) {
      m.state_at = static_cast<size_t>(code_.barriers);
      m.slot = u.slot();
      m.arrivals = u.arrivals();
      code_.barriers += elements;
      if (code_.barriers <= kMaxBarriers) return absl::OkStatus();
      return ResourceExhausted("program ", program_.name, " has more than ", kMaxBarriers,
                               " phased barriers");
    }
    m.slot = u.buffer_slot();
    const bool local = u.space() == AddressSpace::kLocal;
    m.kind = local ? Memory::Kind::kLocal : Memory::Kind::kRegister;
    size_t& bytes = local ? code_.local_bytes : code_.register_bytes;
    size_t& states = local ? code_.local_elements : code_.register_elements;
    m.data_at = bytes;
    m.state_at = states;
    bytes += static_cast<size_t>(BytesOf(u.dtype(), elements));
    states += static_cast<size_t>(elements);
    Instruction in{.op = Op::kBuffer, .position = position, .node = u.id()};
    in.address.memory = memory_of_[u.id()];
    code_.instructions.push_back(in);
    return absl::OkStatus();
  }

  absl::Status Variable(uint32_t position, UOp u) {
    const auto id = static_cast<size_t>(u.var_id());
    if (id >= variables_.size()) {
      return InvalidArgument("node ", position, " (var): variable ", id, " has no value, got ",
                             variables_.size());
    }
    const int64_t value = variables_[id], min = u.var_min(), max = u.var_max(),
                  multiple = u.var_multiple();
    if (value < min || value > max || value % multiple != 0) {
      return InvalidArgument("node ", position, " (var): variable ", id, " is ", value,
                             ", expected a multiple of ", multiple, " in [", min, ", ", max, "]");
    }
    code_.frame[place_[u.id()]] = LaneOfIndex(u.dtype(), value);
    return absl::OkStatus();
  }

  void Parallel(UOp u, AxisType axis) {
    ++code_.parallel;
    code_.prefix = static_cast<uint32_t>(code_.instructions.size());
    if (axis == AxisType::kGroup) {
      ++code_.groups;
    } else {
      code_.local.push_back(u.src(0).const_word());  // Verify: constant and few
      code_.threads *= u.src(0).const_word();
    }
  }

  absl::Status Operands(UOp u, Instruction* in) {
    switch (u.op()) {
      case Op::kRange:
        in->src[0] = PlaceOf(u.src(0));
        in->axis = u.axis_type();
        in->more = code_.parallel;
        return absl::OkStatus();
      case Op::kRole:
      case Op::kBarrier:
        return absl::OkStatus();
      case Op::kWait:
        in->more = static_cast<uint32_t>(code_.waits.size());
        in->lanes = static_cast<uint32_t>(u.num_src());
        for (uint32_t src : u.src_ids()) code_.waits.push_back(opened_[src]);
        return absl::OkStatus();
      case Op::kLoad:
      case Op::kLoadMatrix:
      case Op::kStore:
      case Op::kArrive:
      case Op::kWaitPhase:
        in->address = AddressOf(u.src(0));
        if (u.op() == Op::kStore) in->lanes = in->address.lanes;
        if (u.op() == Op::kStore || u.op() == Op::kWaitPhase) in->src[2] = PlaceOf(u.src(1));
        return absl::OkStatus();
      case Op::kVar:
      case Op::kShuffle:
      case Op::kMma:
        for (int i = 0; i < u.num_src(); ++i) in->src[i] = PlaceOf(u.src(i));
        return absl::OkStatus();
      case Op::kCopyAsync:
      case Op::kMmaAsync:
        in->more = static_cast<uint32_t>(code_.addresses.size());
        in->operation = code_.operations++;
        for (int i = 0; i < u.num_src(); ++i) code_.addresses.push_back(AddressOf(u.src(i)));
        return absl::OkStatus();
      case Op::kReduce:
        in->src[0] = PlaceOf(u.src(0));
        in->lanes = static_cast<uint32_t>(NumElements(u.src(0).shape()));
        in->fn = FoldFn(u.reduce_kind(), u.dtype());
        in->start = FoldStart(u.reduce_kind(), u.dtype());
        break;
      case Op::kReshape:
      case Op::kExpand:
        in->src[0] = PlaceOf(u.src(0));
        in->fn = FindLaneFn(Op::kBitcast, u.dtype(), u.dtype());
        break;
      default:
        for (int i = 0; i < u.num_src() && i < 3; ++i) in->src[i] = PlaceOf(u.src(i));
        if (u.num_src() > 0) {
          const UOp typed = u.src(u.op() == Op::kWhere ? 1 : 0);
          in->fn = FindLaneFn(u.op(), typed.dtype(), u.dtype());
        }
    }
    if (in->fn != nullptr) return absl::OkStatus();
    return Internal("program ", program_.name, ", node ", in->position, " (", Name(u.op()),
                    "): has no meaning on ", Name(u.dtype()));
  }

  // One lane is the same for every lane of the user.
  Operand PlaceOf(UOp u) const { return {place_[u.id()], NumElements(u.shape()) == 1 ? 0u : 1u}; }

  Address AddressOf(UOp index) const {
    Address a{.memory = memory_of_[index.src(0).id()], .index = PlaceOf(index.src(1))};
    a.type = index.src(1).dtype();
    a.lanes = static_cast<uint32_t>(NumElements(index.shape()));
    a.gated = index.num_src() == 3;
    if (a.gated) a.gate = PlaceOf(index.src(2));
    return a;
  }

  const Program& program_;
  const Graph& g_;
  std::span<const int64_t> variables_;
  Code& code_;
  std::vector<uint32_t> place_;      // by id: the first lane in the frame
  std::vector<uint32_t> memory_of_;  // by id
  std::vector<uint32_t> opened_;     // by id: the instruction
  int64_t own_elements_ = 0;
};

}  // namespace

std::string NameOf(const Memory& memory) {
  constexpr std::string_view kNames[] = {"argument ", "buffer ", "buffer ", "mbarrier "};
  return StrCat(kNames[static_cast<size_t>(memory.kind)], memory.slot);
}

absl::Status Decode(const Program& program, std::span<const int64_t> variables, Code* code) {
  return Decoder(program, variables, code).Run();
}

}  // namespace telegrad::reference::internal
