// A program as textual LLVM IR, version 19, with opaque pointers.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/ir/program.h"
#include "engine/types/target.h"

namespace telegrad {

// Bytes that the BUFFERs of one program may take on the CPU: they live on the stack of the thread
// that runs it.
inline constexpr int64_t kMaxPrivateBytes = int64_t{2} << 20;

// The one function of the program.
//
// Its form is that of program_signature.h for the target, and it has the attributes of
// kernel_attributes.h.
//
// x86-64: `void NAME(ptr buffers, i64 begin, i64 end)`, which runs the iterations [begin, end) of
// the program's kThread range, cut to what the range has, as program.h says, and everything if it
// has none.
// buffers[slot] is the address of argument `slot`, aligned to its element.
//
// sm_80, sm_90a: a kernel `void NAME(ptr addrspace(1) argument..., i64 begin)` for a launch of
// `iterations` workgroups in x; workgroups beyond the group ranges do nothing. Arguments are
// aligned to the target's vector_bytes.
//
// AMD's (amd_processors.def): the same kernel, and the same launch. A wave has the target's `warp`
// threads.
//
// Bool elements are bytes, any but 0 is true.
//
// What the caller owes: a written argument overlaps no other argument, for the code assumes so
// (arguments that are only read may be the same memory), and accesses without a gate are inside
// their buffer. What it gets in turn: the code never traps and nothing in it is undefined, whatever
// the data; a BUFFER of a thread reads as 0 before its first store; no float operation is
// contracted or reordered, except that a REDUCE of lanes adds and multiplies them in any order.
//
// The text depends on the program and target alone. INTERNAL for a program that breaks the rules of
// engine/ir/program.h or the target's limits, UNIMPLEMENTED for what the target does not have and
// for other targets.
absl::StatusOr<std::string> RenderLlvm(const Program& program, const Target& target);

}  // namespace telegrad
