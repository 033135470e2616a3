// Import: a model file becomes a stored graph and a buffer for each of its weights. The file is
// read in place: of a file in a buffer that the host can address only the weights are copied, once,
// into their buffers. After an error neither the handles nor the graph exist.
#include <cstring>
#include <utility>

#include "engine/base/status.h"
#include "server/session/session.h"

namespace telegrad {
namespace {

class ViewPayload final : public Payload {
 public:
  explicit ViewPayload(std::string_view bytes) : bytes_(bytes) {}
  int64_t size() const override { return static_cast<int64_t>(bytes_.size()); }
  void CopyTo(void* to) const override { std::memcpy(to, bytes_.data(), bytes_.size()); }

 private:
  const std::string_view bytes_;
};

}  // namespace

// Buffers that go again unless they are kept. Only the drainer sees them meanwhile.
class Session::NewWeights {
 public:
  explicit NewWeights(Session* session) : session_(session) {}
  NewWeights(const NewWeights&) = delete;
  NewWeights& operator=(const NewWeights&) = delete;
  ~NewWeights() {
    for (const uint64_t handle : handles_) session_->Drop(handle);
  }

  absl::StatusOr<Buffer*> Add(const AllocOp& op) {
    TG_RETURN_IF_ERROR(session_->CheckAlloc(op));
    TG_ASSIGN_OR_RETURN(auto buffer, session_->NewBuffer(op));
    handles_.push_back(op.handle);
    session_->bytes_ += buffer->bytes();
    return (session_->buffers_[op.handle] = std::move(buffer)).get();
  }
  void Keep() { handles_.clear(); }

 private:
  Session* const session_;
  std::vector<uint64_t> handles_;
};

Session::Step Session::Do(uint64_t id, ImportOp& op, Queued& queued, Where where, Block* block) {
  std::string_view file;
  const auto opened = OpenModel(op, queued, where, block, &file);
  if (!opened.ok()) return Fail(id, opened.status());
  if (*opened != Step::kDone) return *opened;
  if (where != Where::kCompiler) return Step::kNeedsCompiler;

  const absl::Status allowed = tenant_->TakeCompileTime(env_.clock->Ns());
  if (!allowed.ok()) return Fail(id, allowed);
  const CompileTimer charged(tenant_.get());
  Budget budget(env_.limits.job);
  budget.SetShare(tenant_->share);
  {
    std::lock_guard lock(mutex_);
    if (closed_) return Step::kDone;
    budget_ = &budget;  // which Close and Cancel end
  }
  auto result = Import(op, file, &budget);
  {
    std::lock_guard lock(mutex_);
    budget_ = nullptr;
  }
  op = {};
  queued.model = nullptr;
  if (!result.ok()) return Fail(id, result.status());
  env_.metrics->Add(Metric::kImports);
  Answer answer;
  answer.result = *std::move(result);
  return Reply(id, std::move(answer));
}

// Finds a file that is in a buffer; where the host cannot address that, has it copied. kDone: it is
// there, or comes with the operation.
absl::StatusOr<Session::Step> Session::OpenModel(const ImportOp& op, Queued& queued, Where where,
                                                 Block* block, std::string_view* file) {
  TG_RETURN_IF_ERROR(env_.devices->Find(op.device).status());
  const bool inline_bytes = op.payload != nullptr && op.payload->size() > 0;
  if (op.handle == 0) {
    if (inline_bytes) return Step::kDone;
    return InvalidArgument("import: expected data or a handle, got neither");
  }
  if (inline_bytes) {
    return InvalidArgument("import: there are ", op.payload->size(), " bytes of data and handle ",
                           op.handle, ", expected one of the two");
  }
  TG_ASSIGN_OR_RETURN(Buffer * buffer, FindBuffer(op.handle));
  if (!IsReached(buffer->last_write())) {
    block->point = buffer->last_write();
    return Step::kBlocked;
  }
  TG_RETURN_IF_ERROR(buffer->Poison());
  if (op.bytes == 0 || op.bytes > static_cast<uint64_t>(buffer->bytes())) {
    return InvalidArgument("import of ", op.bytes, " bytes of handle ", op.handle, ", which has ",
                           buffer->bytes());
  }
  const void* at = buffer->host(0);
  if (at == nullptr && !queued.copied) {
    if (where == Where::kReader || where == Where::kDeviceThread) return Step::kNeedsWorker;
    TG_ASSIGN_OR_RETURN(queued.model, Stage(*buffer, op.bytes));
    TG_ASSIGN_OR_RETURN(queued.copied, CopyOut(*buffer, 0, op.bytes, queued.model));
    block->point = *queued.copied;
    return Step::kBlocked;
  }
  if (at == nullptr) {
    TG_RETURN_IF_ERROR(queued.copied->Wait());  // it is reached
    at = queued.model->host();
  }
  *file = {static_cast<const char*>(at), op.bytes};
  return Step::kDone;
}

absl::StatusOr<ImportResult> Session::Import(ImportOp& op, std::string_view file, Budget* budget) {
  Budget::Held held(budget);
  std::string copy;
  if (op.handle == 0) {
    TG_RETURN_IF_ERROR(held.Grow(op.payload->size()));
    copy.resize(static_cast<size_t>(op.payload->size()));
    op.payload->CopyTo(copy.data());
    op.payload.reset();
    file = copy;
  }
  TG_ASSIGN_OR_RETURN(ImportedModel model, op.decode(file, budget));
  NewWeights weights(this);
  uint64_t handle = op.first_handle;
  for (size_t i = 0; i < model.slots.size(); ++i) {
    ImportedSlot& slot = model.slots[i];
    if (slot.role != ImportedSlot::Role::kWeight) continue;
    slot.handle = handle++;
    absl::Status status = budget->CheckTime();
    if (status.ok()) {
      const auto buffer = weights.Add({slot.handle, static_cast<uint64_t>(slot.bytes), op.device});
      status = buffer.ok() ? Fill(**buffer, model.contents[i]) : buffer.status();
    }
    if (!status.ok()) {
      return absl::Status(status.code(),
                          StrCat("import: weight '", slot.name, "': ", ToStd(status.message())));
    }
  }
  const auto stored = MakeStored(std::move(model.graph), model.graph_bytes);
  if (op.compile && !stored->has_variables) {
    const std::string names[] = {op.device};
    TG_RETURN_IF_ERROR(NameDevices(*stored, names));
    TG_RETURN_IF_ERROR(DefaultDevices(*stored));
    TG_RETURN_IF_ERROR(Compile(*stored, {}).status());
  }
  TG_RETURN_IF_ERROR(tenant_->graphs.Put(stored).status());
  weights.Keep();
  return ImportResult{
      .hash = stored->hash,
      .slots = std::make_shared<const std::vector<ImportedSlot>>(std::move(model.slots)),
      .slot_bytes = model.slot_bytes};
}

absl::Status Session::Fill(const Buffer& buffer, std::string_view content) {
  const ViewPayload payload(content);
  if (payload.size() != buffer.bytes()) {
    return Internal("its content has ", payload.size(), " bytes, expected ", buffer.bytes());
  }
  if (payload.size() == 0) return absl::OkStatus();
  if (std::byte* to = buffer.host(0); to != nullptr) {
    payload.CopyTo(to);
  } else {
    TG_ASSIGN_OR_RETURN(const TimelinePoint copied, WriteStaged(payload, 0, buffer));
    TG_RETURN_IF_ERROR(copied.Wait());
  }
  Count(Metric::kBytesWritten, payload.size());
  return absl::OkStatus();
}

}  // namespace telegrad
