#include "engine/compile/compile_worker.h"

#include "engine/compile/build_identity.h"
#include "engine/compile/compiler.h"
#include "engine/compile/worker_protocol.h"
#include "engine/process/frame.h"

namespace telegrad {
namespace {

constexpr int kBroken = 1;

// The first compilation pays for LLVM's tables; it is done before anybody waits for it.
void WarmUp() {
  Target target;
  target.arch = "x86-64";
  (void)Compile("define void @warm(ptr %b, i64 %x, i64 %y) { ret void }", "warm", target);
}

}  // namespace

int ServeCompiles(int socket, const CompilerOptions& options) {
  WarmUp();
  if (!WriteFrame(socket, Encode(WorkerHello{kWorkerProtocol, CompilerIdentity()})).ok()) {
    return kBroken;
  }
  while (true) {
    const auto frame = ReadFrame(socket, kMaxRequestBytes);
    if (absl::IsUnavailable(frame.status())) return 0;  // the daemon has gone
    if (!frame.ok()) return kBroken;
    const auto request = DecodeRequest(*frame);
    if (!request.ok()) return kBroken;
    const WorkerAnswer answer{request->id,
                              Compile(request->source, request->name, request->target, options)};
    if (!WriteFrame(socket, Encode(answer)).ok()) return kBroken;
  }
}

}  // namespace telegrad
