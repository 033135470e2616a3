// A file:
//
//   telegrad moves 1
//   sha256 OF ALL THAT FOLLOWS
//   key LENGTH
//   THE KEY
//   better 1
//   heuristic_ns 512000
//   best_ns 431000
//   measured 212
//   moves UPCAST r0 12, VECTORIZE r1 16, THREAD r0, OUTER r0
//
// Its name is the SHA-256 of the key; the key inside makes a renamed file one of another kernel.
#include "engine/execution/found_moves.h"

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/base/hash.h"
#include "engine/base/status.h"
#include "engine/compile/build_identity.h"
#include "engine/lowering/moves/move.h"

namespace telegrad {
namespace {

constexpr std::string_view kFirstLine = "telegrad moves 1\n";
constexpr int64_t kMaxListBytes = 64 << 10;  // of a file

// "NAME NUMBER\n" at the front of *text.
bool TakeNumber(std::string_view name, std::string_view* text, int64_t* out) {
  if (!text->starts_with(name) || text->size() <= name.size() || (*text)[name.size()] != ' ') {
    return false;
  }
  const size_t end = text->find('\n');
  if (end == std::string_view::npos) return false;
  const std::string_view number = text->substr(name.size() + 1, end - name.size() - 1);
  text->remove_prefix(end + 1);
  return absl::SimpleAtoi(ToAbsl(number), out) && *out >= 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FoundMoves>> FoundMoves::Open(Options options) {
  std::unique_ptr<FoundMoves> found(new FoundMoves(std::move(options)));
  // A build without an identity could not tell its lists from another one's.
  if (!found->options_.path.empty() && !ExecutableBuildId().empty()) {
    TG_ASSIGN_OR_RETURN(found->folder_,
                        PrivateDirectory::Open(found->options_.path, found->options_.limits));
  }
  return found;
}

std::string FoundMoves::Key(std::string_view kernel_hash, std::span<const int32_t> weights,
                            std::string_view target) {
  return StrCat("kernel ", kernel_hash, "\nweights ", ToStd(absl::StrJoin(weights, ",")),
                "\ntarget ", target, "\nbuild ", ExecutableBuildId(), "\n");
}

std::string FoundMoves::FileName(std::string_view key) { return Sha256(key).Hex() + ".moves"; }

std::string FoundMoves::ToFile(std::string_view key, const FoundList& list) {
  const std::string body = StrCat("key ", key.size(), "\n", key, "better ", list.better ? 1 : 0,
                                  "\nheuristic_ns ", list.heuristic_ns, "\nbest_ns ", list.best_ns,
                                  "\nmeasured ", list.measured, "\nmoves ", list.moves, "\n");
  return StrCat(kFirstLine, "sha256 ", Sha256(body).Hex(), "\n", body);
}

absl::StatusOr<FoundList> FoundMoves::FromFile(std::string_view file, std::string_view key) {
  constexpr std::string_view kSum = "sha256 ";
  constexpr size_t kHexDigits = 64;
  if (!file.starts_with(kFirstLine)) return InvalidArgument("it is not a list of moves");
  file.remove_prefix(kFirstLine.size());
  if (!file.starts_with(kSum) || file.size() < kSum.size() + kHexDigits + 1 ||
      file[kSum.size() + kHexDigits] != '\n') {
    return InvalidArgument("it has no checksum");
  }
  const std::string_view sum = file.substr(kSum.size(), kHexDigits);
  file.remove_prefix(kSum.size() + kHexDigits + 1);
  if (Sha256(file).Hex() != sum) return InvalidArgument("its checksum is wrong");
  int64_t length = 0, better = 0;
  FoundList list;
  if (!TakeNumber("key", &file, &length) || length > std::ssize(file) ||
      file.substr(0, static_cast<size_t>(length)) != key) {
    return InvalidArgument("it is of another kernel, target or build");
  }
  file.remove_prefix(static_cast<size_t>(length));
  if (!TakeNumber("better", &file, &better) ||
      !TakeNumber("heuristic_ns", &file, &list.heuristic_ns) ||
      !TakeNumber("best_ns", &file, &list.best_ns) ||
      !TakeNumber("measured", &file, &list.measured) || better > 1) {
    return InvalidArgument("its numbers are malformed");
  }
  constexpr std::string_view kMoves = "moves ";
  if (!file.starts_with(kMoves) || !file.ends_with('\n')) {
    return InvalidArgument("it has no moves");
  }
  file.remove_prefix(kMoves.size());
  file.remove_suffix(1);
  TG_ASSIGN_OR_RETURN(const MoveList moves, ParseMoves(file));
  list.moves = Print(moves);
  list.better = better == 1;
  return list;
}

void FoundMoves::Ignore(const std::string& key, const std::string& why) {
  ignored_.fetch_add(1, std::memory_order_relaxed);
  if (folder_ != nullptr) folder_->Remove(FileName(key));
  if (options_.on_ignored) options_.on_ignored(FileName(key), why);
}

std::optional<FoundList> FoundMoves::Read(const std::string& key) {
  if (folder_ == nullptr) return std::nullopt;
  const auto file = folder_->Read(FileName(key), kMaxListBytes);
  if (absl::IsNotFound(file.status())) return std::nullopt;
  auto list = file.ok() ? FromFile(*file, key) : absl::StatusOr<FoundList>(file.status());
  if (list.ok()) return *std::move(list);
  Ignore(key, std::string(ToStd(list.status().message())));
  return std::nullopt;
}

std::optional<FoundList> FoundMoves::Get(const std::string& key) {
  {
    const MutexLock lock(mutex_);
    if (const auto it = lists_.find(key); it != lists_.end()) return it->second;
  }
  auto list = Read(key);
  const MutexLock lock(mutex_);
  if (lists_.size() >= options_.entries) lists_.clear();  // what is on disk is read again
  return lists_.try_emplace(key, std::move(list)).first->second;
}

void FoundMoves::Put(const std::string& key, const FoundList& list) {
  {
    const MutexLock lock(mutex_);
    if (lists_.size() >= options_.entries) lists_.clear();
    lists_[key] = list;
  }
  version_.fetch_add(1, std::memory_order_release);
  found_.fetch_add(1, std::memory_order_relaxed);
  if (folder_ == nullptr) return;
  if (!folder_->Write(FileName(key), ToFile(key, list)).ok()) {
    write_errors_.fetch_add(1, std::memory_order_relaxed);
  }
}

void FoundMoves::Reject(const std::string& key, const std::string& why) {
  {
    const MutexLock lock(mutex_);
    lists_[key] = std::nullopt;
  }
  Ignore(key, why);
}

FoundMoves::Stats FoundMoves::stats() const {
  return {found_.load(), ignored_.load(), write_errors_.load()};
}

}  // namespace telegrad
