// Two steps. Decoding gives every value a place in one array of lanes (the frame) and turns the
// order into instructions whose operands are places; constants are put in place right away. Running
// is a loop over the instructions with a stack of open loops. A scalar operand has stride 0, so it
// broadcasts by itself.
#include "engine/reference/program_eval.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/status.h"
#include "engine/ir/verify.h"
#include "engine/reference/lane.h"

namespace telegrad::reference {
namespace {

constexpr int64_t kMaxFrameLanes = int64_t{1} << 26;
constexpr int64_t kMaxPrivateElements = int64_t{1} << 26;

struct Operand {
  uint32_t at = 0;
  uint32_t stride = 0;
};

struct Memory {
  std::string_view kind;  // for errors: "argument" or "buffer"
  int64_t slot = 0;
  DType dtype = DType::kVoid;
  int64_t elements = 0;
  uint8_t* data = nullptr;
  bool own = false;  // BUFFER: every element is written before it is read
  std::vector<uint8_t> storage = {};
  std::vector<bool> written = {};
};

struct Instruction {
  Op op;
  uint32_t position;  // in the order
  uint32_t out = 0;
  uint32_t lanes = 1;
  LaneFn fn = nullptr;
  Operand src[3] = {};
  // RANGE: src[0] is the end. LOAD: src[0] is the index, src[1] the gate. STORE: src[2] is the
  // value too.
  DType type = DType::kVoid;  // of the index, or of the range
  bool gated = false;
  bool thread = false;
  uint32_t memory = 0;                       // LOAD, STORE, BUFFER
  Lane start = 0;                            // REDUCE of no lanes
  LaneFn widen = nullptr, narrow = nullptr;  // REDUCE: to the type that it folds in, and back
};

struct Loop {
  size_t body;  // the first instruction after the RANGE
  int64_t i;
  int64_t end;
  uint32_t out;
  DType type;
};

class Interpreter {
 public:
  explicit Interpreter(const Program& program)
      : program_(program), g_(*program.graph), place_(g_.size(), 0), memory_of_(g_.size(), 0) {}

  absl::Status Decode(std::span<const std::span<uint8_t>> buffers) {
    TG_RETURN_IF_ERROR(DecodeArguments(buffers));
    for (uint32_t i = 0; i < program_.order.size(); ++i) {
      TG_RETURN_IF_ERROR(DecodeNode(i, g_.at(program_.order[i])));
    }
    return PairLoops();
  }

  absl::Status Run(int64_t begin, int64_t end) {
    for (size_t pc = 0; pc < code_.size();) {
      const Instruction& in = code_[pc];
      switch (in.op) {
        case Op::kRange:
          pc = Enter(pc, in, begin, end);
          continue;
        case Op::kEnd:
          pc = Next(pc);
          continue;
        case Op::kBuffer:
          std::fill(memories_[in.memory].written.begin(), memories_[in.memory].written.end(),
                    false);
          break;
        case Op::kLoad:
          TG_RETURN_IF_ERROR(Load(in));
          break;
        case Op::kStore:
          TG_RETURN_IF_ERROR(Store(in));
          break;
        case Op::kReduce:
          Reduce(in);
          break;
        default:
          for (uint32_t lane = 0; lane < in.lanes; ++lane) {
            frame_[in.out + lane] =
                in.fn(At(in.src[0], lane), At(in.src[1], lane), At(in.src[2], lane));
          }
      }
      ++pc;
    }
    return absl::OkStatus();
  }

 private:
  // --- decoding ---

  absl::Status DecodeArguments(std::span<const std::span<uint8_t>> buffers) {
    if (buffers.size() != program_.arguments.size()) {
      return InvalidArgument("program ", program_.name, " has ", program_.arguments.size(),
                             " arguments, got ", buffers.size(), " buffers");
    }
    for (size_t slot = 0; slot < buffers.size(); ++slot) {
      const Program::Argument& argument = program_.arguments[slot];
      const int64_t bytes = argument.elements * ByteSize(argument.dtype);
      if (static_cast<int64_t>(buffers[slot].size()) < bytes) {
        return InvalidArgument("buffer ", slot, " has ", buffers[slot].size(),
                               " bytes, expected at least ", bytes);
      }
      memories_.push_back({.kind = "argument",
                           .slot = static_cast<int64_t>(slot),
                           .dtype = argument.dtype,
                           .elements = argument.elements,
                           .data = buffers[slot].data()});
    }
    return absl::OkStatus();
  }

  absl::Status DecodeNode(uint32_t position, UOp u) {
    switch (u.op()) {
      case Op::kParam:
        memory_of_[u.id()] = static_cast<uint32_t>(u.arg(0));
        return absl::OkStatus();
      case Op::kAfter:
        memory_of_[u.id()] = memory_of_[u.src(0).id()];
        return absl::OkStatus();
      case Op::kIndex:  // looked at by the LOAD or STORE
        return absl::OkStatus();
      case Op::kBuffer:
        return DecodeBuffer(position, u);
      default:
        break;
    }
    const int64_t lanes = u.dtype() == DType::kVoid ? 0 : NumElements(u.shape());
    if (static_cast<int64_t>(frame_.size()) + lanes > kMaxFrameLanes) {
      return ResourceExhausted("program ", program_.name, " has more than ", kMaxFrameLanes,
                               " lanes");
    }
    const auto out = static_cast<uint32_t>(frame_.size());
    place_[u.id()] = out;
    frame_.resize(frame_.size() + lanes);
    if (u.op() == Op::kConst) {
      frame_[out] = LaneOfConst(u.dtype(), u.const_word());
      return absl::OkStatus();
    }
    if (u.op() == Op::kIota) {
      for (int64_t i = 0; i < lanes; ++i) frame_[out + i] = LaneOfIndex(u.dtype(), i);
      return absl::OkStatus();
    }
    Instruction in{.op = u.op(), .position = position, .out = out};
    in.lanes = static_cast<uint32_t>(lanes);
    TG_RETURN_IF_ERROR(DecodeOperands(u, &in));
    code_.push_back(in);
    return absl::OkStatus();
  }

  absl::Status DecodeBuffer(uint32_t position, UOp u) {
    const int64_t elements = u.arg(2);
    private_elements_ += elements;
    if (private_elements_ > kMaxPrivateElements) {
      return ResourceExhausted("program ", program_.name, " has more than ", kMaxPrivateElements,
                               " elements of its own memory");
    }
    memory_of_[u.id()] = static_cast<uint32_t>(memories_.size());
    Memory& m = memories_.emplace_back();
    m = {.kind = "buffer", .slot = u.arg(1), .dtype = u.dtype(), .elements = elements, .own = true};
    m.storage.resize(static_cast<size_t>(elements * ByteSize(u.dtype())));
    m.written.resize(static_cast<size_t>(elements));
    m.data = m.storage.data();
    code_.push_back({.op = Op::kBuffer, .position = position, .memory = memory_of_[u.id()]});
    return absl::OkStatus();
  }

  absl::Status DecodeOperands(UOp u, Instruction* in) {
    switch (u.op()) {
      case Op::kEnd:
        return absl::OkStatus();
      case Op::kRange:
        in->src[0] = PlaceOf(u.src(0));
        in->type = u.dtype();
        in->thread = AxisType{u.arg(1)} == AxisType::kThread;
        return absl::OkStatus();
      case Op::kLoad:
      case Op::kStore: {
        const UOp index = u.src(0);
        in->memory = memory_of_[index.src(0).id()];
        in->src[0] = PlaceOf(index.src(1));
        in->type = index.src(1).dtype();
        in->gated = index.num_src() == 3;
        if (in->gated) in->src[1] = PlaceOf(index.src(2));
        if (u.op() == Op::kStore) {
          in->src[2] = PlaceOf(u.src(1));
          in->lanes = static_cast<uint32_t>(NumElements(index.shape()));
        }
        return absl::OkStatus();
      }
      case Op::kReduce:
        in->src[0] = PlaceOf(u.src(0));
        in->lanes = static_cast<uint32_t>(NumElements(u.src(0).shape()));
        in->fn = FoldFn(ReduceKind{u.arg(0)}, u.dtype());
        in->start = FoldStart(ReduceKind{u.arg(0)}, u.dtype());
        in->widen = FindLaneFn(Op::kCast, u.dtype(), FoldType(u.dtype()));
        in->narrow = FindLaneFn(Op::kCast, FoldType(u.dtype()), u.dtype());
        break;
      case Op::kReshape:
      case Op::kExpand:
        in->src[0] = PlaceOf(u.src(0));
        in->fn = FindLaneFn(Op::kBitcast, u.dtype(), u.dtype());
        break;
      default:
        for (int i = 0; i < u.num_src() && i < 3; ++i) in->src[i] = PlaceOf(u.src(i));
        if (u.num_src() > 0) in->fn = FindLaneFn(u.op(), u.src(0).dtype(), u.dtype());
    }
    if (in->fn != nullptr) return absl::OkStatus();
    return Internal("node ", in->position, " (", Name(u.op()), "): has no meaning on ",
                    Name(u.dtype()));
  }

  // One lane is the same for every lane of the user.
  Operand PlaceOf(UOp u) const { return {place_[u.id()], NumElements(u.shape()) == 1 ? 0u : 1u}; }

  // Where each RANGE goes on when its loop has no iteration left.
  absl::Status PairLoops() {
    exit_.resize(code_.size());
    std::vector<size_t> open;
    for (size_t pc = 0; pc < code_.size(); ++pc) {
      if (code_[pc].op == Op::kRange) open.push_back(pc);
      if (code_[pc].op != Op::kEnd) continue;
      exit_[open.back()] = pc + 1;
      open.pop_back();
    }
    return absl::OkStatus();
  }

  // --- running ---

  Lane At(Operand operand, uint32_t lane) const {
    return frame_[operand.at + operand.stride * lane];
  }

  size_t Enter(size_t pc, const Instruction& in, int64_t begin, int64_t end) {
    const int64_t size = LaneAsIndex(in.type, At(in.src[0], 0));
    const Loop loop{.body = pc + 1,
                    .i = in.thread ? begin : 0,
                    .end = in.thread ? std::min(end, size) : size,
                    .out = in.out,
                    .type = in.type};
    if (loop.i >= loop.end) return exit_[pc];
    frame_[loop.out] = LaneOfIndex(loop.type, loop.i);
    loops_.push_back(loop);
    return loop.body;
  }

  size_t Next(size_t pc) {
    Loop& loop = loops_.back();
    if (++loop.i < loop.end) {
      frame_[loop.out] = LaneOfIndex(loop.type, loop.i);
      return loop.body;
    }
    loops_.pop_back();
    return pc + 1;
  }

  absl::Status Load(const Instruction& in) {
    const Memory& m = memories_[in.memory];
    for (uint32_t lane = 0; lane < in.lanes; ++lane) {
      if (in.gated && At(in.src[1], lane) == 0) {
        frame_[in.out + lane] = 0;
        continue;
      }
      const int64_t i = LaneAsIndex(in.type, At(in.src[0], lane));
      if (i < 0 || i >= m.elements) return Outside(in, lane, "reads", i, m);
      if (m.own && !m.written[i]) {
        return Wrong(in, "lane ", lane, " reads element ", i, " of buffer ", m.slot,
                     ", which has not been written");
      }
      frame_[in.out + lane] = ReadLane(m.dtype, m.data + i * ByteSize(m.dtype));
    }
    return absl::OkStatus();
  }

  absl::Status Store(const Instruction& in) {
    Memory& m = memories_[in.memory];
    for (uint32_t lane = 0; lane < in.lanes; ++lane) {
      if (in.gated && At(in.src[1], lane) == 0) continue;
      const int64_t i = LaneAsIndex(in.type, At(in.src[0], lane));
      if (i < 0 || i >= m.elements) return Outside(in, lane, "writes", i, m);
      WriteLane(m.dtype, At(in.src[2], lane), m.data + i * ByteSize(m.dtype));
      if (m.own) m.written[i] = true;
    }
    return absl::OkStatus();
  }

  void Reduce(const Instruction& in) {
    const auto wide = [&](uint32_t lane) { return in.widen(At(in.src[0], lane), 0, 0); };
    Lane sum = in.lanes == 0 ? in.start : wide(0);
    for (uint32_t lane = 1; lane < in.lanes; ++lane) sum = in.fn(sum, wide(lane), 0);
    frame_[in.out] = in.narrow(sum, 0, 0);
  }

  template <typename... Args>
  absl::Status Wrong(const Instruction& in, const Args&... args) const {
    return Internal("program ", program_.name, ", node ", in.position, " (", Name(in.op),
                    "): ", args...);
  }
  absl::Status Outside(const Instruction& in, uint32_t lane, std::string_view does, int64_t i,
                       const Memory& m) const {
    return Wrong(in, "lane ", lane, " ", does, " element ", i, " of ", m.kind, " ", m.slot,
                 ", which has ", m.elements);
  }

  const Program& program_;
  const Graph& g_;
  std::vector<uint32_t> place_;      // by id: the first lane in the frame
  std::vector<uint32_t> memory_of_;  // by id
  std::vector<Memory> memories_;     // the arguments by slot, then the buffers
  std::vector<Instruction> code_;
  std::vector<size_t> exit_;  // by instruction; of RANGEs
  std::vector<Lane> frame_;
  std::vector<Loop> loops_;
  int64_t private_elements_ = 0;
};

}  // namespace

absl::Status Run(const Program& program, std::span<const std::span<uint8_t>> buffers, int64_t begin,
                 int64_t end) {
  TG_RETURN_IF_ERROR(Verify(program));
  if (begin < 0 || begin > end || end > program.iterations) {
    return InvalidArgument("iterations [", begin, ", ", end, ") are outside of [0, ",
                           program.iterations, ")");
  }
  if (begin == end) return absl::OkStatus();
  Interpreter interpreter(program);
  TG_RETURN_IF_ERROR(interpreter.Decode(buffers));
  return interpreter.Run(begin, end);
}

}  // namespace telegrad::reference
