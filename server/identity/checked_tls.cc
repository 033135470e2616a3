// A copy is a memfd, of which gRPC knows the path below /proc/self/fd. Another file takes its place
// under the same number at once, so nobody reads a part of one. Certificate and key are one file,
// which is both in PEM, so that nobody reads the key of another certificate either.
#include "server/identity/checked_tls.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "engine/base/status.h"
#include "server/admin/log.h"
#include "server/identity/reloaded.h"

namespace telegrad {
namespace {

constexpr std::chrono::seconds kLookInterval{1};

absl::StatusOr<std::string> ReadTlsFile(const std::string& path) {
  auto text = ReadSmallFile(path);
  if (text.ok()) return text;
  return absl::Status(text.status().code(), StrCat(path, ": ", text.status().message()));
}

absl::StatusOr<UniqueFd> MemoryOf(std::string_view text) {
  UniqueFd fd(memfd_create("tls", MFD_CLOEXEC));
  if (!fd.valid() || write(fd.get(), text.data(), text.size()) != std::ssize(text)) {
    return absl::UnavailableError(StrCat("a copy of the files of TLS: ", std::strerror(errno)));
  }
  return fd;
}

// The block of the key alone: a file of a key may have certificates, too, which are not the chain.
std::string_view KeyIn(std::string_view text) {
  for (size_t begin = text.find("-----BEGIN "); begin != std::string_view::npos;
       begin = text.find("-----BEGIN ", begin + 1)) {
    const std::string_view rest = text.substr(begin);
    if (rest.substr(0, rest.find('\n')).find("PRIVATE KEY-----") == std::string_view::npos)
      continue;
    const size_t end = rest.find("-----END ");
    return rest.substr(0, end == std::string_view::npos ? end : rest.find('\n', end));
  }
  return {};
}

std::string StampOfAll(const TlsFiles& files) {
  std::string all;
  for (const std::string* path : {&files.certificate, &files.key, &files.client_ca}) {
    if (path->empty()) continue;
    const std::string stamp = FileStamp(*path);
    if (stamp.empty()) return "";
    StrAppend(&all, stamp, "\n");
  }
  return all;
}

}  // namespace

TlsFiles CheckedTls::PathsOf(const Copy& copy) {
  const auto path = [](const UniqueFd& fd) {
    return fd.valid() ? StrCat("/proc/self/fd/", fd.get()) : std::string();
  };
  return {path(copy.identity), path(copy.identity), path(copy.client_ca)};
}

absl::StatusOr<CheckedTls::Copy> CheckedTls::CopyOf(const TlsFiles& files) {
  TG_ASSIGN_OR_RETURN(const std::string certificate, ReadTlsFile(files.certificate));
  TG_ASSIGN_OR_RETURN(const std::string key, ReadTlsFile(files.key));
  Copy copy;
  TG_ASSIGN_OR_RETURN(copy.identity, MemoryOf(StrCat(certificate, "\n", KeyIn(key), "\n")));
  if (!files.client_ca.empty()) {
    TG_ASSIGN_OR_RETURN(const std::string client_ca, ReadTlsFile(files.client_ca));
    TG_ASSIGN_OR_RETURN(copy.client_ca, MemoryOf(client_ca));
  }
  // What was read is checked, not what the files are by now; an error names the files.
  if (const absl::Status wrong = CheckTlsFiles(PathsOf(copy)); !wrong.ok()) {
    TG_RETURN_IF_ERROR(CheckTlsFiles(files));
    return absl::UnavailableError(wrong.message());
  }
  return copy;
}

absl::StatusOr<std::unique_ptr<CheckedTls>> CheckedTls::Open(const TlsFiles& files) {
  std::string stamp = StampOfAll(files);
  TG_RETURN_IF_ERROR(CheckTlsFiles(files));
  TG_ASSIGN_OR_RETURN(Copy first, CopyOf(files));
  return std::unique_ptr<CheckedTls>(new CheckedTls(files, std::move(first), std::move(stamp)));
}

CheckedTls::CheckedTls(const TlsFiles& files, Copy first, std::string stamp)
    : files_(files),
      copy_(std::move(first)),
      copies_(PathsOf(copy_)),
      stamp_(std::move(stamp)),
      ticker_(kLookInterval, [this] { Refresh(); }) {}

void CheckedTls::Refresh() {
  const MutexLock lock(mutex_);
  std::string stamp = StampOfAll(files_);
  if (stamp == stamp_ && !stamp.empty()) return;
  const absl::StatusOr<Copy> now = CopyOf(files_);
  if (!now.ok()) {
    // What could not be read is tried again; what is wrong, when it has changed.
    const bool again = absl::IsUnavailable(now.status());
    stamp_ = again ? "" : std::move(stamp);
    if (!again) Log(LogLevel::kError, "tls_refused", {{"reason", now.status().message()}});
    return;
  }
  stamp_ = std::move(stamp);
  dup3(now->identity.get(), copy_.identity.get(), O_CLOEXEC);
  if (copy_.client_ca.valid()) dup3(now->client_ca.get(), copy_.client_ca.get(), O_CLOEXEC);
}

}  // namespace telegrad
