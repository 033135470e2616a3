// Operations of several threads together (shuffles, matrix products) and asynchronous ones (copies
// and matrix products in the background). An asynchronous operation is resolved to elements when it
// starts, and its accesses are recorded then; its data moves when a WAIT or its phase completes it.
#include <algorithm>
#include <bit>

#include "engine/reference/fragments.h"
#include "engine/reference/program_machine.h"

namespace telegrad::reference::internal {
namespace {

float ToFloat(DType dtype, Lane lane) {
  if (dtype != DType::kFloat32) lane = FindLaneFn(Op::kCast, dtype, DType::kFloat32)(lane, 0, 0);
  return std::bit_cast<float>(static_cast<uint32_t>(lane));
}
Lane FromFloat(float value) { return std::bit_cast<uint32_t>(value); }

// The element at `row`, `column` of a box or tile; INT64_MAX where no buffer is that large.
int64_t ElementOf(int64_t first, int64_t row, int64_t stride, int64_t column) {
  const auto at = static_cast<__int128>(row) * stride + first + column;
  return at > INT64_MAX || at < INT64_MIN ? INT64_MAX : static_cast<int64_t>(at);
}

// COPY_ASYNC's argument.
struct Box {
  explicit Box(std::span<const int64_t> arg)
      : rows(arg[0]), columns(arg[1]), to_stride(arg[2]), from_stride(arg[3]) {}
  int64_t rows, columns, to_stride, from_stride;
};

// c + the product of row `row` of a and column `column` of b: products are exact in f32, sums
// round.
float Dot(const MmaInfo& mma, std::span<const float> a, std::span<const float> b, int row,
          int column, float c) {
  for (int k = 0; k < mma.k; ++k) c += a[row * mma.k + k] * b[k * mma.n + column];
  return c;
}

}  // namespace

void Machine::Shuffle(Thread& t, const Instruction& in) {
  const auto [first, end] = Members(t, Scope::kWarp);
  const int64_t from = LaneAsIndex(g_.at(in.node).src(1).dtype(), At(t, in.src[1], 0));
  const bool exists = from >= 0 && from < static_cast<int64_t>(end - first);
  for (uint32_t lane = 0; lane < in.lanes; ++lane) {
    t.frame[in.out + lane] =
        exists ? At(threads_[first + static_cast<uint32_t>(from)], in.src[0], lane) : 0;
  }
}

// Lane 8 i + r names row r of matrix i; PTX ISA, "ldmatrix".
absl::Status Machine::LoadMatrix(const Instruction& in, uint32_t first) {
  constexpr int64_t kSide = 8;
  const int64_t count = g_.at(in.node).matrices();
  const bool transposed = g_.at(in.node).transposed() != 0;
  for (int64_t matrix = 0; matrix < count; ++matrix) {
    Lane elements[kSide][kSide];
    for (int64_t row = 0; row < kSide; ++row) {
      Thread& t = threads_[first + static_cast<uint32_t>(kSide * matrix + row)];
      const int64_t begin = IndexAt(t, in.address, 0);
      if (begin % kSide != 0) {
        return Wrong(t, in, "row ", row, " of matrix ", matrix, " begins at element ", begin,
                     ", expected a multiple of ", kSide);
      }
      for (int64_t column = 0; column < kSide; ++column) {
        TG_RETURN_IF_ERROR(CheckRead(t, in, static_cast<uint32_t>(column), begin + column));
        elements[row][column] = ReadElement(in.type, t.data[in.address.memory], begin + column);
      }
    }
    for (int64_t lane = 0; lane < kSide * kSide / 2; ++lane) {
      Lane* const out = &threads_[first + static_cast<uint32_t>(lane)].frame[in.out + 2 * matrix];
      for (int64_t i = 0; i < 2; ++i) {
        const int64_t x = lane / 4, y = 2 * (lane % 4) + i;
        out[i] = transposed ? elements[y][x] : elements[x][y];
      }
    }
  }
  return absl::OkStatus();
}

void Machine::Mma(const Instruction& in, uint32_t first) {
  const MmaInfo& mma = g_.at(in.node).mma();
  std::vector<float> a(static_cast<size_t>(mma.m * mma.k)), b(static_cast<size_t>(mma.k * mma.n));
  for (int n = 0; n < mma.threads; ++n) {
    const Thread& t = threads_[first + static_cast<uint32_t>(n)];
    for (int i = 0; i < mma.a_size(); ++i) {
      const Element e = FragmentA(mma, n, i);
      a[e.row * mma.k + e.column] = ToFloat(mma.a, At(t, in.src[0], i));
    }
    for (int i = 0; i < mma.b_size(); ++i) {
      const Element e = FragmentB(mma, n, i);
      b[e.row * mma.n + e.column] = ToFloat(mma.b, At(t, in.src[1], i));
    }
  }
  for (int n = 0; n < mma.threads; ++n) {
    Thread& t = threads_[first + static_cast<uint32_t>(n)];
    for (int i = 0; i < mma.c_size(); ++i) {
      const Element e = FragmentC(mma, n, i);
      const float c = ToFloat(mma.c, At(t, in.src[2], i));
      t.frame[in.out + i] = FromFloat(Dot(mma, a, b, e.row, e.column, c));
    }
  }
}

absl::Status Machine::StartCopy(Thread& t, const Instruction& in) {
  const Address* const addresses = &code_.addresses[in.more];
  const Address &to = addresses[0], &from = addresses[1];
  const bool counted = g_.src(in.node).size() == 3;
  Executions& executions = t.executions[in.operation];
  executions.any = true;
  if (Gated(t, to, 0) || (counted && Gated(t, addresses[2], 0))) {
    if (!counted) executions.open.push_back({});
    return absl::OkStatus();
  }
  Operation op{.pc = t.pc, .threads = {t.number}};
  op.to = IndexAt(t, to, 0);
  op.from = IndexAt(t, from, 0);
  op.zeros = Gated(t, from, 0);
  if (counted) {
    TG_ASSIGN_OR_RETURN(op.barrier, BarrierOf(t, in, addresses[2]));
  }
  const Box box(g_.arg(in.node));
  const Memory& target = code_.memories[to.memory];
  const Memory& source = code_.memories[from.memory];
  for (int64_t i : {op.to, ElementOf(op.to, box.rows - 1, box.to_stride, box.columns - 1)}) {
    if (i < 0 || i >= target.elements) return Outside(t, in, 0, "writes", i, to.memory);
  }
  const uint32_t number = shadow_.AddOperation(1);
  const Access me{Access::kOperation | number, 0, in.position};
  for (int64_t r = 0; r < box.rows; ++r) {
    for (int64_t c = 0; c < box.columns; ++c) {
      const int64_t i = ElementOf(op.to, r, box.to_stride, c);
      TG_RETURN_IF_ERROR(Touch(t, in, 0, to.memory, i, true, me, t.clock));
      const int64_t j = ElementOf(op.from, r, box.from_stride, c);
      if (op.zeros || j < 0 || j >= source.elements) continue;
      TG_RETURN_IF_ERROR(Touch(t, in, 0, from.memory, j, false, me, t.clock));
      if (t.states[from.memory] != nullptr && t.states[from.memory][j] == 0) {
        return Wrong(t, in, "reads element ", j, " of ", NameOf(source),
                     ", which has not been written");
      }
    }
  }
  steps_ -= std::min(steps_, box.rows * box.columns);
  if (options_.sources_at_issue) ReadBox(&op);
  operations_.push_back(std::move(op));
  if (counted) {
    flying_.push_back(number);
  } else {
    executions.open.push_back({number, 0});
  }
  return absl::OkStatus();
}

void Machine::ReadBox(Operation* op) const {
  const Instruction& in = code_.instructions[op->pc];
  const uint32_t memory = code_.addresses[in.more + 1].memory;
  const Memory& source = code_.memories[memory];
  const uint8_t* const data = threads_[op->threads[0]].data[memory];
  const Box box(g_.arg(in.node));
  op->box.reserve(static_cast<size_t>(box.rows * box.columns));
  for (int64_t r = 0; r < box.rows; ++r) {
    for (int64_t c = 0; c < box.columns; ++c) {
      const int64_t i = ElementOf(op->from, r, box.from_stride, c);
      const bool zero = op->zeros || i < 0 || i >= source.elements;
      op->box.push_back(zero ? 0 : ReadElement(source.dtype, data, i));
    }
  }
}

void Machine::FinishCopy(Operation* op) {
  const Instruction& in = code_.instructions[op->pc];
  const uint32_t memory = code_.addresses[in.more].memory;
  uint8_t* const data = threads_[op->threads[0]].data[memory];
  uint8_t* const states = threads_[op->threads[0]].states[memory];
  const Box box(g_.arg(in.node));
  if (op->box.empty()) ReadBox(op);
  for (int64_t r = 0; r < box.rows; ++r) {
    for (int64_t c = 0; c < box.columns; ++c) {
      const int64_t i = ElementOf(op->to, r, box.to_stride, c);
      WriteElement(code_.memories[memory].dtype, op->box[r * box.columns + c], data, i);
      if (states != nullptr) states[i] = kWritten;
    }
  }
  op->box = {};
}

void Machine::Land(size_t i) {
  const uint32_t number = flying_[i];
  flying_.erase(flying_.begin() + static_cast<ptrdiff_t>(i));
  Operation& op = operations_[number];
  const Instruction& in = code_.instructions[op.pc];
  const Box box(g_.arg(in.node));
  FinishCopy(&op);
  PhasedBarrier& b = barriers_[op.barrier];
  b.bytes -= BytesOf(g_.dtype(g_.src(in.node)[0]), box.rows * box.columns);
  shadow_.Complete(number, 0, {AgentOf(op.barrier), b.phases + 1});
  CheckPhase(op.barrier);
}

// All members are at the instruction. The tiles are read on behalf of all of them, so whatever
// wrote these is ordered before each.
absl::Status Machine::StartMma(Thread& t, const Instruction& in,
                               std::pair<uint32_t, uint32_t> members) {
  const std::span<const int64_t> arg = g_.arg(in.node);
  const MmaInfo& mma = AllMmas()[static_cast<size_t>(arg[0])];
  const Address* const addresses = &code_.addresses[in.more];
  const Thread& leader = threads_[members.first];
  Operation op{.pc = t.pc};
  op.to = IndexAt(leader, addresses[0], 0);
  op.from = IndexAt(leader, addresses[1], 0);
  VectorClock least = leader.clock;
  for (uint32_t n = members.first; n < members.second; ++n) {
    const Thread& member = threads_[n];
    const int64_t a = IndexAt(member, addresses[0], 0), b = IndexAt(member, addresses[1], 0);
    if (a != op.to || b != op.from) {
      return Wrong(member, in, "has its tiles at elements ", a, " and ", b, ", expected ", op.to,
                   " and ", op.from, " as thread ", leader.number, " has");
    }
    for (size_t i = 0; i < least.size(); ++i) least[i] = std::min(least[i], member.clock[i]);
    op.threads.push_back(n);
  }
  const uint32_t number = shadow_.AddOperation(op.threads.size());
  const Access me{Access::kOperation | number, 0, in.position};
  const auto tile = [&](const Address& at, int64_t first, int rows, int columns,
                        int64_t stride) -> absl::Status {
    const Memory& m = code_.memories[at.memory];
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < columns; ++c) {
        const int64_t i = ElementOf(first, r, stride, c);
        if (i < 0 || i >= m.elements) return Outside(leader, in, 0, "reads", i, at.memory);
        TG_RETURN_IF_ERROR(Touch(leader, in, 0, at.memory, i, false, me, least));
        if (leader.states[at.memory][i] != 0) continue;
        return Wrong(leader, in, "reads element ", i, " of ", NameOf(m),
                     ", which has not been written");
      }
    }
    return absl::OkStatus();
  };
  TG_RETURN_IF_ERROR(tile(addresses[0], op.to, mma.m, mma.k, arg[1]));
  TG_RETURN_IF_ERROR(tile(addresses[1], op.from, mma.k, mma.n, arg[2]));
  for (uint32_t n : op.threads) {
    Thread& member = threads_[n];
    const Address& at = addresses[2];
    const Memory& m = code_.memories[at.memory];
    std::vector<int64_t>& elements = op.c.emplace_back();
    for (uint32_t lane = 0; lane < at.lanes; ++lane) {
      const int64_t i = IndexAt(member, at, lane);
      if (i < 0 || i >= m.elements) return Outside(member, in, lane, "adds to", i, at.memory);
      uint8_t& state = member.states[at.memory][i];
      if (state == 0) {
        return Wrong(member, in, "lane ", lane, " adds to element ", i, " of ", NameOf(m),
                     ", which has not been written");
      }
      if (state > kMaxState) {
        return Wrong(member, in, "lane ", lane, " adds to element ", i, " of ", NameOf(m), ", as ",
                     state / kUnderWay, " operations under way do");
      }
      state += kUnderWay;
      elements.push_back(i);
    }
    Executions& executions = member.executions[in.operation];
    executions.any = true;
    executions.open.push_back({number, n - members.first});
  }
  if (options_.sources_at_issue) ReadTiles(&op);
  operations_.push_back(std::move(op));
  return absl::OkStatus();
}

void Machine::ReadTiles(Operation* op) const {
  const Instruction& in = code_.instructions[op->pc];
  const std::span<const int64_t> arg = g_.arg(in.node);
  const MmaInfo& mma = AllMmas()[static_cast<size_t>(arg[0])];
  const auto read = [&](const Address& at, int64_t first, int rows, int columns, int64_t stride,
                        std::vector<float>* out) {
    const DType dtype = code_.memories[at.memory].dtype;
    const uint8_t* const data = threads_[op->threads[0]].data[at.memory];
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < columns; ++c) {
        out->push_back(ToFloat(dtype, ReadElement(dtype, data, ElementOf(first, r, stride, c))));
      }
    }
  };
  read(code_.addresses[in.more], op->to, mma.m, mma.k, arg[1], &op->a);
  read(code_.addresses[in.more + 1], op->from, mma.k, mma.n, arg[2], &op->b);
}

void Machine::FinishMma(Operation* op, size_t part) {
  const Instruction& in = code_.instructions[op->pc];
  const MmaInfo& mma = g_.at(in.node).mma();
  const uint32_t memory = code_.addresses[in.more + 2].memory;
  Thread& t = threads_[op->threads[part]];
  if (op->a.empty()) ReadTiles(op);
  for (int i = 0; i < mma.c_size(); ++i) {
    const int64_t at = op->c[part][static_cast<size_t>(i)];
    const Element e = FragmentC(mma, static_cast<int>(part), i);
    const float c = ToFloat(mma.c, ReadElement(mma.c, t.data[memory], at));
    WriteElement(mma.c, FromFloat(Dot(mma, op->a, op->b, e.row, e.column, c)), t.data[memory], at);
    t.states[memory][at] -= kUnderWay;
  }
  op->c[part] = {};
  if (++op->complete == op->threads.size()) op->a = op->b = {};
}

absl::Status Machine::Wait(Thread& t, const Instruction& in) {
  const auto pending = static_cast<size_t>(g_.at(in.node).number());
  for (uint32_t i = 0; i < in.lanes; ++i) {
    const Instruction& started = code_.instructions[code_.waits[in.more + i]];
    Executions& executions = t.executions[started.operation];
    if (!executions.any) {
      return Wrong(t, in, "waits for node ", started.position, " (", Name(started.op),
                   "), which this thread has never started");
    }
    while (executions.open.size() > pending) {
      FinishPart(t, executions.open.front());
      executions.open.pop_front();
    }
  }
  return absl::OkStatus();
}

void Machine::FinishPart(Thread& t, Part part) {
  if (part.operation == kNone) return;
  Operation& op = operations_[part.operation];
  if (code_.instructions[op.pc].op == Op::kMmaAsync) {
    FinishMma(&op, part.part);
  } else {
    FinishCopy(&op);
  }
  shadow_.Complete(part.operation, part.part, {t.number, t.clock[t.number]});
}

}  // namespace telegrad::reference::internal
