// Zip archives (PKWARE APPNOTE.TXT 6.3, Zip64 included), as far as tensor files use them: stored
// and deflated members of one file, found through the central directory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/frontend/io/byte_sink.h"
#include "engine/frontend/io/byte_source.h"

namespace telegrad {

struct ZipMember {
  std::string name;
  int64_t offset = 0;  // in the file, of the data
  int64_t stored = 0;  // bytes there
  int64_t size = 0;    // of the content
  uint32_t crc = 0;
  bool deflated = false;
};

struct ZipDirectory {
  std::vector<ZipMember> members;                      // as in the directory
  const ZipMember* Find(std::string_view name) const;  // null if there is none
};

// Members have distinct names and distinct bytes, and no more content than their compressed bytes
// can hold, so that the file's length bounds the work of inflating all of it. UNIMPLEMENTED for
// encryption, other methods of compression and archives in several parts.
absl::StatusOr<ZipDirectory> ReadZipDirectory(const ByteSource& source);

// The first `bytes` of a member's content, or all of it, whose CRC-32 is then checked.
absl::StatusOr<std::string> ReadZipMember(const ByteSource& source, const ZipMember& member,
                                          int64_t bytes);

// Writes an archive of stored members.
class ZipWriter {
 public:
  explicit ZipWriter(ByteSink* sink) : sink_(sink) {}
  // The content is the pieces one after another.
  absl::Status Add(std::string_view name, std::initializer_list<std::string_view> pieces);
  absl::Status Finish();

 private:
  ByteSink* sink_;
  int64_t at_ = 0;
  std::vector<ZipMember> members_;
};

}  // namespace telegrad
