// Both ends map the file; the kernel keeps its pages for as long as one of them does.
#include "devices/cpu/exported_memory.h"

#include <algorithm>
#include <utility>

#include "devices/api/shared_memory.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

// Counted as the arena's for as long as it lives.
class Counted {
 public:
  static absl::StatusOr<std::unique_ptr<Counted>> Take(std::shared_ptr<Arena> arena, int64_t size) {
    TG_RETURN_IF_ERROR(arena->Count(size));
    return std::unique_ptr<Counted>(new Counted(std::move(arena), size));
  }
  ~Counted() { arena_->Uncount(size_); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  Counted(std::shared_ptr<Arena> arena, int64_t size) : arena_(std::move(arena)), size_(size) {}
  const std::shared_ptr<Arena> arena_;
  const int64_t size_;
};

class ExportedMemory final : public Memory {
 public:
  ExportedMemory(std::unique_ptr<Counted> counted, ExportedFile file,
                 std::unique_ptr<SharedMapping> mapping, int64_t size)
      : Memory(mapping->base(), size, /*writable=*/true, MemoryKind::kExported),
        counted_(std::move(counted)),
        file_(std::move(file)),
        mapping_(std::move(mapping)) {}
  const std::string& handle() const { return file_.handle; }

 private:
  const std::unique_ptr<Counted> counted_;
  const ExportedFile file_;
  const std::unique_ptr<SharedMapping> mapping_;
};

class ImportedMemory final : public Memory {
 public:
  ImportedMemory(std::unique_ptr<SharedMapping> mapping, int64_t size)
      : Memory(mapping->base(), size, /*writable=*/true, MemoryKind::kImported),
        mapping_(std::move(mapping)) {}

 private:
  const std::unique_ptr<SharedMapping> mapping_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Memory>> AllocExported(std::shared_ptr<Arena> arena, int64_t size) {
  TG_ASSIGN_OR_RETURN(auto counted, Counted::Take(std::move(arena), size));
  const int64_t bytes = std::max<int64_t>(size, 1);
  TG_ASSIGN_OR_RETURN(ExportedFile file, CreateExportedFile(bytes));
  TG_ASSIGN_OR_RETURN(auto mapping, SharedMapping::Map(file.file.get(), bytes));
  return std::make_shared<ExportedMemory>(std::move(counted), std::move(file), std::move(mapping),
                                          size);
}

std::string HandleOf(const Memory& memory) {
  const auto* const exported = dynamic_cast<const ExportedMemory*>(&memory);
  return exported == nullptr ? "" : exported->handle();
}

absl::StatusOr<std::shared_ptr<Memory>> OpenExported(std::string_view handle, int64_t size) {
  if (size < 1) return InvalidArgument(size, " bytes of shared memory");
  TG_ASSIGN_OR_RETURN(const UniqueFd file, OpenExportedFile(handle));
  const int64_t bytes = SizeOf(file);
  if (bytes < size) {
    return InvalidArgument("the memory of the handle has ", bytes, " bytes, not ", size);
  }
  TG_ASSIGN_OR_RETURN(auto mapping, SharedMapping::Map(file.get(), bytes));
  return std::make_shared<ImportedMemory>(std::move(mapping), size);
}

}  // namespace telegrad
