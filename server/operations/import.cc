// The file is read in place: of a file in a buffer that the host can address only the weights are
// copied, once, into their buffers.
#include "server/operations/import.h"

#include <cstring>
#include <optional>
#include <utility>

#include "engine/base/status.h"
#include "server/operations/alloc.h"
#include "server/operations/compiling.h"
#include "server/operations/staged.h"
#include "server/session/turn.h"

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

// Buffers that go again unless they are kept. Only the drainer sees them meanwhile.
class NewWeights {
 public:
  explicit NewWeights(Turn* turn) : turn_(*turn) {}
  NewWeights(const NewWeights&) = delete;
  NewWeights& operator=(const NewWeights&) = delete;
  ~NewWeights() {
    for (const uint64_t handle : handles_) turn_.handles().Drop(handle);
  }

  absl::StatusOr<Buffer*> Add(const AllocOp& op) {
    TG_RETURN_IF_ERROR(turn_.handles().CheckNew(op.handle));
    TG_ASSIGN_OR_RETURN(auto buffer, NewBuffer(turn_, op));
    handles_.push_back(op.handle);
    return turn_.handles().Add(op.handle, std::move(buffer));
  }
  void Keep() { handles_.clear(); }

 private:
  Turn& turn_;
  std::vector<uint64_t> handles_;
};

absl::Status Fill(const Turn& turn, const Buffer& buffer, std::string_view content) {
  const ViewPayload payload(content);
  if (payload.size() != buffer.bytes()) {
    return Internal("its content has ", payload.size(), " bytes, expected ", buffer.bytes());
  }
  if (payload.size() == 0) return absl::OkStatus();
  if (std::byte* to = buffer.host(0); to != nullptr) {
    payload.CopyTo(to);
  } else {
    TG_ASSIGN_OR_RETURN(const TimelinePoint copied, WriteStaged(turn, payload, 0, buffer));
    TG_RETURN_IF_ERROR(copied.Wait());
  }
  turn.Count(Metric::kBytesWritten, payload.size());
  return absl::OkStatus();
}

class ImportAction final : public Action {
 public:
  explicit ImportAction(ImportOp op) : op_(std::move(op)) {}

  int64_t staged_bytes() const override { return op_.payload ? op_.payload->size() : 0; }
  bool committed() const override { return copied_.has_value(); }
  Step Do(Turn& turn) override;

 private:
  absl::StatusOr<Step> OpenModel(Turn& turn, std::string_view* file);
  absl::StatusOr<ImportResult> Import(Turn& turn, std::string_view file, Budget* budget);
  absl::Status AddWeights(const ImportedModel& model, Budget* budget, NewWeights* weights,
                          const Turn& turn, std::vector<ImportedSlot>* slots) const;

  ImportOp op_;
  std::shared_ptr<Memory> model_;        // where the host can read it,
  std::optional<TimelinePoint> copied_;  // once this is reached
};

Step ImportAction::Do(Turn& turn) {
  std::string_view file;
  const auto opened = OpenModel(turn, &file);
  if (!opened.ok()) return turn.Fail(opened.status());
  if (*opened != Step::kDone) return *opened;
  if (turn.where() != OnThread::kCompiler) return Step::kNeedsCompiler;

  Tenant& tenant = turn.tenant();
  const int64_t now_ns = turn.env().clock->Ns();
  absl::Status allowed = tenant.TakeCompileTime(now_ns);
  // A model in a buffer was paid for when it was written there.
  if (allowed.ok()) {
    allowed = tenant.TakeTransfer(static_cast<uint64_t>(staged_bytes()), now_ns);
  }
  if (!allowed.ok()) return turn.Fail(allowed);
  const CompileTimer charged(&tenant);
  Budget budget(turn.env().limits.job);
  budget.SetShare(tenant.share);
  absl::StatusOr<ImportResult> result = absl::InternalError("");
  {
    const auto job = Turn::Job::Begin(turn, &budget);
    if (!job.ok()) return turn.Fail(job.status());
    result = Import(turn, file, &budget);
  }
  op_ = {};
  model_ = nullptr;
  if (!result.ok()) return turn.Fail(result.status());
  turn.env().metrics->Add(Metric::kImports);
  return turn.Reply(MakeResult(*std::move(result)));
}

// Finds a file that is in a buffer; where the host cannot address that, has it copied. kDone: it is
// there, or comes with the operation.
absl::StatusOr<Step> ImportAction::OpenModel(Turn& turn, std::string_view* file) {
  TG_RETURN_IF_ERROR(turn.env().devices->Find(op_.device).status());
  const bool inline_bytes = op_.payload != nullptr && op_.payload->size() > 0;
  if (op_.handle == 0) {
    if (inline_bytes) return Step::kDone;
    return InvalidArgument("import: expected data or a handle, got neither");
  }
  if (inline_bytes) {
    return InvalidArgument("import: there are ", op_.payload->size(), " bytes of data and handle ",
                           op_.handle, ", expected one of the two");
  }
  TG_ASSIGN_OR_RETURN(Buffer * buffer, turn.handles().Find(op_.handle));
  if (!IsReached(buffer->last_write())) return turn.Wait(buffer->last_write());
  TG_RETURN_IF_ERROR(buffer->Poison());
  if (op_.bytes == 0 || op_.bytes > static_cast<uint64_t>(buffer->bytes())) {
    return InvalidArgument("import of ", op_.bytes, " bytes of handle ", op_.handle, ", which has ",
                           buffer->bytes());
  }
  const void* at = buffer->host(0);
  if (at == nullptr && !copied_) {
    if (!turn.long_work()) return Step::kNeedsWorker;
    TG_ASSIGN_OR_RETURN(model_, Stage(turn, *buffer, op_.bytes));
    TG_ASSIGN_OR_RETURN(copied_, CopyOut(turn, *buffer, 0, op_.bytes, model_));
    return turn.Wait(*copied_);
  }
  if (at == nullptr) {
    TG_RETURN_IF_ERROR(copied_->Wait());  // it is reached
    at = model_->host();
  }
  *file = {static_cast<const char*>(at), op_.bytes};
  return Step::kDone;
}

absl::Status ImportAction::AddWeights(const ImportedModel& model, Budget* budget,
                                      NewWeights* weights, const Turn& turn,
                                      std::vector<ImportedSlot>* slots) const {
  uint64_t handle = op_.first_handle;
  for (size_t i = 0; i < slots->size(); ++i) {
    ImportedSlot& slot = (*slots)[i];
    if (slot.role != ImportedSlot::Role::kWeight) continue;
    slot.handle = handle++;
    absl::Status status = budget->CheckTime();
    if (status.ok()) {
      const auto buffer =
          weights->Add({slot.handle, static_cast<uint64_t>(slot.bytes), op_.device});
      status = buffer.ok() ? Fill(turn, **buffer, model.contents[i]) : buffer.status();
    }
    if (!status.ok()) {
      return absl::Status(status.code(),
                          StrCat("import: weight '", slot.name, "': ", ToStd(status.message())));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ImportResult> ImportAction::Import(Turn& turn, std::string_view file,
                                                  Budget* budget) {
  Budget::Held held(budget);
  std::string copy;
  if (op_.handle == 0) {
    TG_RETURN_IF_ERROR(held.Grow(op_.payload->size()));
    copy.resize(static_cast<size_t>(op_.payload->size()));
    op_.payload->CopyTo(copy.data());
    op_.payload.reset();
    file = copy;
  }
  TG_ASSIGN_OR_RETURN(ImportedModel model, op_.decode(file, budget));
  NewWeights weights(&turn);
  std::vector<ImportedSlot> slots = std::move(model.slots);
  TG_RETURN_IF_ERROR(AddWeights(model, budget, &weights, turn, &slots));
  const auto stored = MakeStored(std::move(model.graph), model.graph_bytes);
  if (op_.compile && !stored->has_variables) {
    const std::string names[] = {op_.device};
    TG_RETURN_IF_ERROR(CompileAhead(turn, *stored, names).status());
  }
  TG_RETURN_IF_ERROR(turn.tenant().graphs.Put(stored).status());
  weights.Keep();
  return ImportResult{
      .hash = stored->hash,
      .slots = std::make_shared<const std::vector<ImportedSlot>>(std::move(slots)),
      .interface = std::make_shared<const ImportedInterface>(std::move(model.interface)),
      .slot_bytes = model.slot_bytes};
}

}  // namespace

std::unique_ptr<Action> MakeAction(ImportOp op) {
  return std::make_unique<ImportAction>(std::move(op));
}

}  // namespace telegrad
