// Parses the requests of the local socket, finds the session and starts the transfer on the pool
// of workers.
#include "server/data/local_data.h"

#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/base/status.h"
#include "server/data/local_transfers.h"

namespace telegrad {
namespace {

struct Named {
  std::string token;
  uint64_t epoch = 0, transfer = 0, offset = 0, bytes = 0;
};

std::optional<std::string> FromHex(std::string_view text) {
  if (text.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (size_t at = 0; at < text.size(); at += 2) {
    uint8_t byte = 0;
    const auto [end, error] = std::from_chars(&text[at], &text[at] + 2, byte, 16);
    if (error != std::errc() || end != &text[at] + 2) return std::nullopt;
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

absl::StatusOr<Named> Parse(std::string_view text) {
  const absl::Status expected =
      absl::InvalidArgumentError("expected TOKEN EPOCH TRANSFER OFFSET BYTES");
  Named named;
  const size_t space = text.find(' ');
  auto token = FromHex(text.substr(0, space));
  if (space == std::string_view::npos || !token) return expected;
  named.token = *std::move(token);
  text.remove_prefix(space);
  for (uint64_t* number : {&named.epoch, &named.transfer, &named.offset, &named.bytes}) {
    if (!text.starts_with(' ')) return expected;
    const char* const end = text.data() + text.size();
    const auto [parsed, error] = std::from_chars(text.data() + 1, end, *number);
    if (error != std::errc()) return expected;
    text = {parsed, static_cast<size_t>(end - parsed)};
  }
  if (!text.empty()) return expected;
  return named;
}

}  // namespace

LocalSocket::Handlers LocalDataHandlers(TaskPool* workers, FindLocalSession find) {
  const auto handle = [workers, find = std::move(find), kept = std::make_shared<KeptMappings>()](
                          LocalSocket::Request request,
                          bool upload) -> absl::StatusOr<std::optional<std::string>> {
    TG_ASSIGN_OR_RETURN(const Named named, Parse(request.text));
    if (request.descriptors.size() != 1) {
      return InvalidArgument("expected one descriptor, got ", request.descriptors.size());
    }
    TG_ASSIGN_OR_RETURN(const FoundSession found,
                        find(request.principal.tenant, named.token, named.epoch));
    const std::shared_ptr<TransferOwner>& session = found.session;
    TG_ASSIGN_OR_RETURN(Reservation paid, kept->Pay(found.shared_files));
    TG_ASSIGN_OR_RETURN(
        auto file,
        SealedFile::Open(std::move(request.descriptors[0]), named.offset, named.bytes,
                         /*write=*/!upload, std::move(paid), kept, found.shared_files.get()));
    session->Renew();
    const std::shared_ptr<Transfers> transfers(session, &session->transfers());
    if (upload) {
      const absl::Status taken = UploadFrom(std::move(file), named.transfer, *transfers, workers);
      // An operation that has failed already says so itself.
      if (!taken.ok() && !absl::IsNotFound(taken)) return taken;
      return std::string();
    }
    TG_RETURN_IF_ERROR(
        DownloadTo(std::move(file), named.transfer, transfers, workers,
                   [answer = std::move(request.answer_later), transfer = named.transfer, session,
                    bytes = static_cast<int64_t>(named.bytes)](const absl::Status& status) {
                     if (status.ok()) session->Count(Metric::kBytesRead, bytes);
                     answer(status.ok() ? absl::StatusOr<std::string>(StrCat(transfer)) : status);
                   }));
    return std::nullopt;
  };
  return {{"upload", [handle](LocalSocket::Request r) { return handle(std::move(r), true); }},
          {"download", [handle](LocalSocket::Request r) { return handle(std::move(r), false); }}};
}

}  // namespace telegrad
