// JITLink under a bare ORC session, without LLJIT's platform: a kernel has no initializers, no
// thread-local data and no unwind tables. Each program is a dynamic library of its own, so it can
// go when its last reference goes. It sees the few functions of the C library that LLVM may call
// for a kernel, and nothing else.
#include "devices/cpu/loader.h"

#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/mutex.h"
#include "engine/base/status.h"
#include "llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h"
#include "llvm/ExecutionEngine/Orc/Core.h"
#include "llvm/ExecutionEngine/Orc/ExecutorProcessControl.h"
#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"
#include "llvm/Support/MemoryBuffer.h"

namespace telegrad {
namespace {

using llvm::orc::ExecutorAddr;

struct HostSymbol {
  const char* name;
  ExecutorAddr address;
};

// What LLVM may call: block operations, and rounding, fma and minima where the processor has no
// instruction (of a single half, for which LLVM expands llvm.minimum into fminf and its repairs).
std::vector<HostSymbol> HostSymbols() {
  const auto at = [](auto* function) { return ExecutorAddr::fromPtr(function); };
  return {
      {"memcpy", at(&std::memcpy)},
      {"memmove", at(&std::memmove)},
      {"memset", at(&std::memset)},
      {"fma", at(static_cast<double (*)(double, double, double)>(&::fma))},
      {"fmaf", at(&::fmaf)},
      {"fmin", at(static_cast<double (*)(double, double)>(&::fmin))},
      {"fminf", at(&::fminf)},
      {"fmax", at(static_cast<double (*)(double, double)>(&::fmax))},
      {"fmaxf", at(&::fmaxf)},
      {"floor", at(static_cast<double (*)(double)>(&::floor))},
      {"floorf", at(&::floorf)},
      {"trunc", at(static_cast<double (*)(double)>(&::trunc))},
      {"truncf", at(&::truncf)},
  };
}

class Session {
 public:
  explicit Session(std::unique_ptr<llvm::orc::ExecutorProcessControl> process)
      : session_(std::move(process)), layer_(session_) {
    // A lookup that fails says only that it failed; the reason is reported here before.
    session_.setErrorReporter([this](llvm::Error error) {
      MutexLock lock(mutex_);
      StrAppend(&reports_, llvm::toString(std::move(error)), "; ");
    });
  }
  ~Session() { llvm::consumeError(session_.endSession()); }

  llvm::Error DefineHost() {
    host_ = &session_.createBareJITDylib("host");
    llvm::orc::SymbolMap symbols;
    for (const HostSymbol& symbol : HostSymbols()) {
      symbols[session_.intern(symbol.name)] = {symbol.address, llvm::JITSymbolFlags::Exported};
    }
    return host_->define(llvm::orc::absoluteSymbols(std::move(symbols)));
  }

  llvm::Expected<llvm::orc::JITDylib*> Add(const ProgramImage& image, uint64_t number) {
    llvm::orc::JITDylib& library =
        session_.createBareJITDylib(image.name + "." + std::to_string(number));
    library.addToLinkOrder(*host_);
    if (llvm::Error error =
            layer_.add(library, llvm::MemoryBuffer::getMemBufferCopy(image.binary, image.name))) {
      Remove(library);
      return error;
    }
    return &library;
  }

  llvm::Expected<WorkerPool::Body> Entry(llvm::orc::JITDylib& library, const std::string& name) {
    auto symbol = session_.lookup({&library}, session_.intern(name));
    if (!symbol) return symbol.takeError();
    return symbol->getAddress().toPtr<WorkerPool::Body>();
  }

  std::string TakeReports() {
    MutexLock lock(mutex_);
    return std::exchange(reports_, "");
  }

  void Remove(llvm::orc::JITDylib& library) {
    llvm::consumeError(session_.removeJITDylib(library));
  }

 private:
  Mutex mutex_;
  std::string reports_ TG_GUARDED_BY(mutex_);
  llvm::orc::ExecutionSession session_;
  llvm::orc::ObjectLinkingLayer layer_;
  llvm::orc::JITDylib* host_ = nullptr;
};

class OrcProgram : public CpuProgram {
 public:
  OrcProgram(ProgramSignature signature, std::shared_ptr<Session> session,
             llvm::orc::JITDylib* library, WorkerPool::Body entry)
      : CpuProgram(std::move(signature), entry), session_(std::move(session)), library_(library) {}
  ~OrcProgram() override { session_->Remove(*library_); }

 private:
  std::shared_ptr<Session> session_;
  llvm::orc::JITDylib* library_;
};

class OrcLoader : public Loader {
 public:
  explicit OrcLoader(std::shared_ptr<Session> session) : session_(std::move(session)) {}

  absl::StatusOr<std::shared_ptr<CpuProgram>> Load(const ProgramImage& image) override {
    // One at a time, so that the reports are this program's. Linking takes a fraction of a
    // millisecond.
    MutexLock lock(mutex_);
    session_->TakeReports();
    auto library = session_->Add(image, next_++);
    if (!library) return Bad(image, library.takeError());
    auto entry = session_->Entry(**library, image.name);
    if (!entry) {
      absl::Status status = Bad(image, entry.takeError());
      session_->Remove(**library);
      return status;
    }
    return std::make_shared<OrcProgram>(image.signature, session_, *library, *entry);
  }

 private:
  absl::Status Bad(const ProgramImage& image, llvm::Error error) {
    return InvalidArgument("program ", image.name, ": ", session_->TakeReports(),
                           llvm::toString(std::move(error)));
  }

  std::shared_ptr<Session> session_;
  Mutex mutex_;
  uint64_t next_ TG_GUARDED_BY(mutex_) = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Loader>> Loader::Create() {
  auto process = llvm::orc::SelfExecutorProcessControl::Create();
  if (!process) return Internal("ORC: ", llvm::toString(process.takeError()));
  auto session = std::make_shared<Session>(std::move(*process));
  if (llvm::Error error = session->DefineHost()) {
    return Internal("ORC: ", llvm::toString(std::move(error)));
  }
  return std::make_unique<OrcLoader>(std::move(session));
}

}  // namespace telegrad
