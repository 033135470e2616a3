// A kernel gets its arguments, its workgroup's number and its threads' numbers and nothing else:
// the attributes say so, for what is not ruled out takes registers in every wave and hidden
// arguments, which the launch would have to fill.
//
// A wave executes in step, and a workgroup has one barrier, which all of its waves must reach.
// Local memory has no copies beside the threads here: they load and store, in the same units.
#include "engine/render/amdgpu.h"

#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr int kPrivateSpace = 5;
constexpr int64_t kWarpsOfGroup = 4;  // of a warpgroup

// Inputs that a kernel would get if it were not for "amdgpu-no-" and their names.
constexpr std::string_view kUnusedInputs[] = {
    "workitem-id-y", "workitem-id-z",   "workgroup-id-y",    "workgroup-id-z",     "dispatch-ptr",
    "queue-ptr",     "implicitarg-ptr", "dispatch-id",       "lds-kernel-id",      "hostcall-ptr",
    "heap-ptr",      "default-queue",   "completion-action", "multigrid-sync-arg",
};

}  // namespace

int AmdgpuKernel::private_space() const { return kPrivateSpace; }

std::string AmdgpuKernel::ThreadNumber() {
  return out_.Call("llvm.amdgcn.workitem.id.x", "i32", {});
}

std::string AmdgpuKernel::WorkgroupNumber() {
  return out_.Call("llvm.amdgcn.workgroup.id.x", "i32", {});
}

std::string AmdgpuKernel::Attributes() const {
  std::string out =
      StrCat(" \"amdgpu-flat-work-group-size\"=\"", threads(), ",", threads(),
             "\" \"uniform-work-group-size\"=\"true\"", " \"amdgpu-implicitarg-num-bytes\"=\"0\"");
  for (const std::string_view input : kUnusedInputs) StrAppend(&out, " \"amdgpu-no-", input, "\"");
  return out;
}

std::string AmdgpuKernel::Metadata() const {
  return StrCat("!0 = !{i32 ", threads(), ", i32 1, i32 1}\n");
}

void AmdgpuKernel::Synchronize(std::string_view scope, std::string_view barrier) {
  out_.Line("fence syncscope(\"", scope, "\") release");
  out_.CallVoid(barrier, {});
  out_.Line("fence syncscope(\"", scope, "\") acquire");
}

absl::Status AmdgpuKernel::Barrier(UOp u) {
  const Scope scope = u.scope();
  const Threads present = Present();
  int64_t width = present.count;
  if (scope == Scope::kThread) {
    // LLVM would move loads before it to where their values are used, which is what it is against:
    // in the form that it optimizes, by memory that is written, and later in its schedule.
    out_.Line("call void asm sideeffect \"\", \"~{memory}\"()");
    out_.CallVoid("llvm.amdgcn.sched.barrier", {{"i32", "0"}});
    return absl::OkStatus();
  }
  if (scope == Scope::kWarp) width = program_.warp;
  if (scope == Scope::kWarpgroup) width = program_.warp * kWarpsOfGroup;
  const int64_t wave = HardwareLanes();
  if (width == 1) return absl::OkStatus();
  if (wave % width == 0 && present.first % width == 0) {
    Synchronize("wavefront", "llvm.amdgcn.wave.barrier");
    return absl::OkStatus();
  }
  if (present != Threads{0, threads()}) {
    return Lacks("barrier of the threads ", present.first, " to ",
                 present.first + present.count - 1, " of ", threads());
  }
  Synchronize("workgroup", "llvm.amdgcn.s.barrier");
  return absl::OkStatus();
}

// The instruction takes the lane's number in bytes, and of it only what counts lanes.
std::string AmdgpuKernel::ShuffleWord(std::string_view word, std::string_view lane) {
  std::string from(lane);
  if (program_.warp < HardwareLanes()) {
    const std::string first = out_.Let("and i32 ", thread(), ", ", HardwareLanes() - program_.warp);
    from = out_.Let("or i32 ", first, ", ", lane);
  }
  const std::string bytes = out_.Let("shl i32 ", from, ", 2");
  return out_.Call("llvm.amdgcn.ds.bpermute", "i32", {{"i32", bytes}, {"i32", std::string(word)}});
}

absl::Status AmdgpuKernel::CopyUnits(UOp copy, int64_t unit) {
  const Address &to = *AddressOf(copy.src(0)), &from = *AddressOf(copy.src(1));
  const int64_t lanes = unit / ByteSize(to.dtype);
  if (from.memory->elements < lanes || from.memory->elements % lanes != 0) {
    CopyElements(copy);  // a unit may lie inside of the source in part
    return absl::OkStatus();
  }
  const std::string type = LlvmMemoryType(to.dtype, lanes);
  ForBox(copy, lanes, [&](const auto& there, const std::string& here, const auto& left) {
    std::string safe = here, exists;
    if (!left.empty()) {
      // Where there is none, the first one is read and dropped.
      exists = out_.Let("icmp ne i64 ", left, ", 0");
      safe = out_.Let("select i1 ", exists, ", i64 ", here, ", i64 0");
    }
    std::string value = out_.Let("load ", type, ", ", from.pointer_type(), " ",
                                 PointerAt(from, safe), ", align ", unit, from.memory->of_loads);
    if (!left.empty()) {
      value =
          out_.Let("select i1 ", exists, ", ", type, " ", value, ", ", type, " zeroinitializer");
    }
    out_.Line("store ", type, " ", value, ", ", to.pointer_type(), " ", PointerAt(to, there),
              ", align ", unit, to.memory->of_stores);
  });
  return absl::OkStatus();
}

}  // namespace telegrad
