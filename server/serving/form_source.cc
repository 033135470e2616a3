#include "server/serving/form_source.h"

#include <utility>

#include "engine/base/status.h"

namespace telegrad {

absl::StatusOr<ReadForm> FileFormSource::Read(const ImportOptions& options, Budget* budget) {
  TG_ASSIGN_OR_RETURN(const auto content, files_->Read());
  ImportOptions with_files = options;
  with_files.external = [&](std::string_view location) {
    return files_->ReadOther(*content, location);
  };
  TG_ASSIGN_OR_RETURN(ReadForm out, read_(content->file, with_files, budget));
  struct Kept {
    std::shared_ptr<const void> content, model;
  };
  out.model.keep =
      std::make_shared<const Kept>(Kept{.content = content, .model = std::move(out.model.keep)});
  return out;
}

}  // namespace telegrad
