// A file: the word kMagic, the format's version (u32), the SHA-256 of all that follows, the whole
// key, the kernel. The name is the SHA-256 of the key; the key inside makes a renamed file a miss.
#include "engine/execution/kernel_store.h"

#include "engine/base/byte_codec.h"
#include "engine/base/hash.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

constexpr uint32_t kMagic = 0x4b4b4754;  // "TGKK"
constexpr uint32_t kVersion = 3;
constexpr size_t kHeaderBytes = 8;
constexpr size_t kChecksumBytes = sizeof(Digest::bytes);
constexpr int64_t kMaxFileBytes = int64_t{256} << 20;

std::string ToFile(std::string_view key, const CompiledKernel& kernel) {
  ByteWriter body;
  body.Text(key);
  body.Text(Encode(kernel));
  const std::string bytes = body.Take();
  ByteWriter header;
  header.Word(kMagic);
  header.Word(kVersion);
  return header.Take() + std::string(Sha256(bytes).view()) + bytes;
}

std::optional<CompiledKernel> FromFile(std::string_view file, std::string_view key) {
  ByteReader header(file);
  const auto magic = header.Word<uint32_t>(), version = header.Word<uint32_t>();
  if (!header.ok() || magic != kMagic || version != kVersion) return std::nullopt;
  if (file.size() < kHeaderBytes + kChecksumBytes) return std::nullopt;
  const std::string_view checksum = file.substr(kHeaderBytes, kChecksumBytes);
  const std::string_view bytes = file.substr(kHeaderBytes + kChecksumBytes);
  if (Sha256(bytes).view() != checksum) return std::nullopt;
  ByteReader body(bytes);
  const std::string_view its_key = body.Text(), kernel = body.Text();
  if (!body.Done() || its_key != key) return std::nullopt;
  return DecodeCompiledKernel(kernel);
}

}  // namespace

std::string KernelStore::FileName(std::string_view key) { return Sha256(key).Hex() + ".kernel"; }

absl::StatusOr<std::unique_ptr<KernelStore>> KernelStore::Open(const Options& options) {
  std::unique_ptr<KernelStore> store(new KernelStore(options));
  TG_ASSIGN_OR_RETURN(store->folder_, PrivateDirectory::Open(options.path, options.limits));
  return store;
}

std::optional<CompiledKernel> KernelStore::Get(std::string_view key) {
  const auto file = folder_->Read(FileName(key), kMaxFileBytes);
  if (file.ok()) {
    if (auto kernel = FromFile(*file, key)) {
      hits_.fetch_add(1);
      return kernel;
    }
    Reject(key);
  } else if (absl::IsFailedPrecondition(file.status())) {
    Reject(key);
  }
  misses_.fetch_add(1);
  return std::nullopt;
}

void KernelStore::Put(std::string_view key, const CompiledKernel& kernel) {
  const absl::Status status = folder_->Write(FileName(key), ToFile(key, kernel));
  if (!status.ok()) write_errors_.fetch_add(1);
  if (!last_write_failed_.exchange(!status.ok()) && !status.ok() && options_.on_write_error) {
    options_.on_write_error(status);
  }
}

void KernelStore::Reject(std::string_view key) {
  folder_->Remove(FileName(key));
  rejected_.fetch_add(1);
}

KernelStore::Stats KernelStore::stats() const {
  return {hits_.load(),         misses_.load(),     rejected_.load(),
          write_errors_.load(), folder_->evicted(), folder_->bytes()};
}

}  // namespace telegrad
