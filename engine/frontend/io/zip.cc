// Sizes and places are taken from the central directory, since a local header may say nothing of
// them; of a local header only its own length and name count. A field of 32 bits that is all ones
// is in the Zip64 extra field.
#include "engine/frontend/io/zip.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "absl/strings/escaping.h"
#include "engine/base/byte_codec.h"
#include "engine/base/status.h"
#include "engine/frontend/io/inflate.h"

namespace telegrad {
namespace {

constexpr int64_t kMaxDirectory = 64 << 20;  // bytes
constexpr int64_t kMaxRatio = 1032;          // of inflated to deflated bytes: 258 bytes in two bits
constexpr uint32_t kEnd = 0x06054b50, kEnd64 = 0x06064b50, kLocator64 = 0x07064b50;
constexpr uint32_t kCentral = 0x02014b50, kLocal = 0x04034b50;
constexpr int64_t kEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56;
constexpr int64_t kCentralBytes = 46, kLocalBytes = 30;
constexpr uint16_t kEncrypted = 1, kUtf8 = 1 << 11;
constexpr uint16_t kStored = 0, kDeflate = 8;
constexpr uint32_t kIn64 = 0xffffffff;
constexpr uint16_t kCount64 = 0xffff, kExtra64 = 1;
constexpr uint16_t kVersion = 45;   // that reads Zip64
constexpr uint16_t kDate = 0x0021;  // 1980-01-01: the same tensors give the same file

struct Directory {
  uint64_t offset = 0, bytes = 0, members = 0;
};

absl::Status Damaged(std::string_view what) { return InvalidArgument("zip: ", what); }

absl::StatusOr<Directory> ReadEnd64(const ByteSource& source, int64_t end) {
  if (end < kLocatorBytes) return Damaged("no room for the Zip64 locator before the end record");
  char locator[kLocatorBytes] = {};
  TG_RETURN_IF_ERROR(source.Read(end - kLocatorBytes, std::as_writable_bytes(std::span(locator))));
  ByteReader l({locator, sizeof(locator)});
  if (l.Word<uint32_t>() != kLocator64) return Damaged("no Zip64 locator before the end record");
  l.Word<uint32_t>();
  const uint64_t at = l.Word<uint64_t>();
  if (at > static_cast<uint64_t>(end - kLocatorBytes) ||
      end - kLocatorBytes - static_cast<int64_t>(at) < kEnd64Bytes) {
    return InvalidArgument("zip: the Zip64 end record is said to be at byte ", at);
  }
  char record[kEnd64Bytes] = {};
  TG_RETURN_IF_ERROR(
      source.Read(static_cast<int64_t>(at), std::as_writable_bytes(std::span(record))));
  ByteReader r({record, sizeof(record)});
  if (r.Word<uint32_t>() != kEnd64) {
    return InvalidArgument("zip: there is no Zip64 end record at byte ", at);
  }
  r.Word<uint64_t>();
  r.Word<uint32_t>();
  if (r.Word<uint32_t>() != 0 || r.Word<uint32_t>() != 0) {
    return Unimplemented("zip: an archive in several parts");
  }
  Directory out;
  r.Word<uint64_t>();
  out.members = r.Word<uint64_t>();
  out.bytes = r.Word<uint64_t>();
  out.offset = r.Word<uint64_t>();
  return out;
}

// From the end record, which is last but for a comment of at most 64 KiB.
absl::StatusOr<Directory> FindDirectory(const ByteSource& source) {
  const int64_t n = std::min<int64_t>(source.size(), kEndBytes + 0xffff);
  TG_ASSIGN_OR_RETURN(const std::string tail, source.ReadString(source.size() - n, n));
  for (int64_t at = n - kEndBytes; at >= 0; --at) {
    ByteReader r(std::string_view(tail).substr(static_cast<size_t>(at)));
    if (r.Word<uint32_t>() != kEnd) continue;
    const uint16_t disk = r.Word<uint16_t>(), first_disk = r.Word<uint16_t>();
    r.Word<uint16_t>();
    const uint16_t members = r.Word<uint16_t>();
    const uint32_t bytes = r.Word<uint32_t>(), offset = r.Word<uint32_t>();
    if (r.Word<uint16_t>() != n - at - kEndBytes) continue;  // within the comment
    if (members == kCount64 || bytes == kIn64 || offset == kIn64) {
      return ReadEnd64(source, source.size() - n + at);
    }
    if (disk != 0 || first_disk != 0) return Unimplemented("zip: an archive in several parts");
    return Directory{offset, bytes, members};
  }
  return Damaged("there is no end record: the file is cut short or no archive");
}

// Takes from the extra fields what did not fit into 32 bits, in this order.
absl::Status ReadExtra64(std::string_view extra, uint64_t* size, uint64_t* stored,
                         uint64_t* offset) {
  ByteReader r(extra);
  while (r.ok() && !extra.empty()) {
    const auto id = r.Word<uint16_t>(), bytes = r.Word<uint16_t>();
    extra.remove_prefix(std::min<size_t>(extra.size(), 4));
    if (!r.ok() || bytes > extra.size()) return Damaged("an extra field leaves its member");
    ByteReader field(extra.substr(0, bytes));
    if (id == kExtra64) {
      for (uint64_t* value : {size, stored, offset}) {
        if (*value == kIn64) *value = field.Word<uint64_t>();
      }
      return field.ok() ? absl::OkStatus() : Damaged("a Zip64 extra field is too short");
    }
    extra.remove_prefix(bytes);
    r = ByteReader(extra);
  }
  return absl::OkStatus();
}

// A member with the place of its local header as offset.
absl::StatusOr<ZipMember> ReadCentral(std::string_view* rest) {
  ByteReader r(*rest);
  if (r.Word<uint32_t>() != kCentral)
    return Damaged("the directory has no member where one is due");
  r.Word<uint32_t>();
  const uint16_t flags = r.Word<uint16_t>(), method = r.Word<uint16_t>();
  r.Word<uint32_t>();
  ZipMember out;
  out.crc = r.Word<uint32_t>();
  uint64_t stored = r.Word<uint32_t>(), size = r.Word<uint32_t>();
  const size_t name = r.Word<uint16_t>(), extra = r.Word<uint16_t>(), comment = r.Word<uint16_t>();
  const uint16_t disk = r.Word<uint16_t>();
  r.Word<uint16_t>();
  r.Word<uint32_t>();
  uint64_t offset = r.Word<uint32_t>();
  if (!r.ok() || rest->size() - kCentralBytes < name + extra + comment) {
    return Damaged("the directory ends within a member");
  }
  out.name = rest->substr(kCentralBytes, name);
  const auto where = [&] { return StrCat("zip: '", absl::CEscape(out.name), "'"); };
  if ((flags & kEncrypted) != 0) return Unimplemented(where(), " is encrypted");
  if (method != kStored && method != kDeflate) {
    return Unimplemented(where(), " has compression method ", method, ", expected 0 or 8");
  }
  if (disk != 0) return Unimplemented("zip: an archive in several parts");
  TG_RETURN_IF_ERROR(
      ReadExtra64(rest->substr(kCentralBytes + name, extra), &size, &stored, &offset));
  out.deflated = method == kDeflate;
  constexpr uint64_t kMost = uint64_t{1} << 52;
  if (stored > kMost || offset > kMost || size > kMost || (!out.deflated && size != stored) ||
      size > (stored + 1) * kMaxRatio) {
    return InvalidArgument(where(), " has ", size, " bytes of content in ", stored,
                           out.deflated ? " compressed ones" : " stored ones",
                           out.deflated ? ", which cannot hold them" : "");
  }
  out.stored = static_cast<int64_t>(stored);
  out.size = static_cast<int64_t>(size);
  out.offset = static_cast<int64_t>(offset);
  rest->remove_prefix(kCentralBytes + name + extra + comment);
  return out;
}

// The bytes before the data of the member whose local header is at `m.offset`.
absl::StatusOr<int64_t> LocalBytes(const ByteSource& source, const ZipMember& m) {
  const absl::StatusOr<std::string> local =
      source.ReadString(m.offset, kLocalBytes + static_cast<int64_t>(m.name.size()));
  if (local.ok()) {
    ByteReader r(*local);
    const bool signature = r.Word<uint32_t>() == kLocal;
    for (int i = 0; i < 11; ++i) r.Word<uint16_t>();
    const size_t name = r.Word<uint16_t>(), extra = r.Word<uint16_t>();
    if (signature && std::string_view(*local).substr(kLocalBytes) == m.name &&
        name == m.name.size()) {
      return kLocalBytes + static_cast<int64_t>(name + extra);
    }
  }
  return InvalidArgument("zip: at byte ", m.offset, " there is no header of '",
                         absl::CEscape(m.name), "'");
}

}  // namespace

const ZipMember* ZipDirectory::Find(std::string_view name) const {
  const auto it = std::ranges::find(members, name, &ZipMember::name);
  return it == members.end() ? nullptr : &*it;
}

absl::StatusOr<ZipDirectory> ReadZipDirectory(const ByteSource& source) {
  TG_ASSIGN_OR_RETURN(const Directory directory, FindDirectory(source));
  const auto file = static_cast<uint64_t>(source.size());
  if (directory.offset > file || directory.bytes > file - directory.offset ||
      directory.members > directory.bytes / kCentralBytes) {
    return InvalidArgument("zip: a directory of ", directory.members, " members in ",
                           directory.bytes, " bytes at byte ", directory.offset, " of ", file);
  }
  if (directory.bytes > kMaxDirectory) {
    return ResourceExhausted("zip: a directory of ", directory.bytes, " bytes, the limit is ",
                             kMaxDirectory);
  }
  TG_ASSIGN_OR_RETURN(const std::string central,
                      source.ReadString(static_cast<int64_t>(directory.offset),
                                        static_cast<int64_t>(directory.bytes)));
  std::string_view rest = central;
  ZipDirectory out;
  std::set<std::string_view> names;
  std::map<int64_t, int64_t> used;  // begin to end, local headers included
  out.members.reserve(directory.members);
  for (uint64_t i = 0; i < directory.members; ++i) {
    TG_ASSIGN_OR_RETURN(ZipMember m, ReadCentral(&rest));
    TG_ASSIGN_OR_RETURN(const int64_t before, LocalBytes(source, m));
    const int64_t begin = m.offset, end = begin + before + m.stored;
    if (end > static_cast<int64_t>(directory.offset) || !used.emplace(begin, end).second) {
      return InvalidArgument("zip: '", absl::CEscape(m.name), "' has the bytes [", begin, ", ", end,
                             "), of which others are used already");
    }
    m.offset += before;
    out.members.push_back(std::move(m));
    if (!names.insert(out.members.back().name).second) {
      return InvalidArgument("zip: '", absl::CEscape(out.members.back().name), "' appears twice");
    }
  }
  int64_t at = 0;
  for (const auto& [begin, end] : used) {
    if (begin < at) return InvalidArgument("zip: members overlap at byte ", begin);
    at = end;
  }
  return out;
}

absl::StatusOr<std::string> ReadZipMember(const ByteSource& source, const ZipMember& member,
                                          int64_t bytes) {
  const int64_t n = std::min(bytes, member.size);
  if (!member.deflated) return source.ReadString(member.offset, n);
  std::string out(static_cast<size_t>(n), '\0');
  Inflater inflater(&source, member.offset, member.stored);
  TG_RETURN_IF_ERROR(inflater.Read(std::as_writable_bytes(std::span(out.data(), out.size()))));
  if (n == member.size) TG_RETURN_IF_ERROR(inflater.ExpectEnd(member.crc));
  return out;
}

absl::Status ZipWriter::Add(std::string_view name, std::initializer_list<std::string_view> pieces) {
  if (name.size() > 0xffff) return InvalidArgument("zip: a name of ", name.size(), " bytes");
  ZipMember m{.name = std::string(name), .offset = at_};
  for (const std::string_view piece : pieces) {
    m.crc = static_cast<uint32_t>(
        crc32_z(m.crc, reinterpret_cast<const Bytef*>(piece.data()), piece.size()));
    m.size += static_cast<int64_t>(piece.size());
  }
  m.stored = m.size;
  const bool large = m.size >= kIn64;
  ByteWriter w;
  w.Word(kLocal);
  w.Word(kVersion);
  w.Word(kUtf8);
  w.Word(kStored);
  w.Word(uint16_t{0});
  w.Word(kDate);
  w.Word(m.crc);
  for (int i = 0; i < 2; ++i) w.Word(large ? kIn64 : static_cast<uint32_t>(m.size));
  w.Word(static_cast<uint16_t>(name.size()));
  w.Word(static_cast<uint16_t>(large ? 20 : 0));
  std::string header = w.Take() + m.name;
  if (large) {
    w.Word(kExtra64);
    w.Word(uint16_t{16});
    w.Word(m.size);
    w.Word(m.size);
    header += w.Take();
  }
  TG_RETURN_IF_ERROR(sink_->Append(header));
  for (const std::string_view piece : pieces) TG_RETURN_IF_ERROR(sink_->Append(piece));
  at_ += static_cast<int64_t>(header.size()) + m.size;
  members_.push_back(std::move(m));
  return absl::OkStatus();
}

absl::Status ZipWriter::Finish() {
  std::string out;
  for (const ZipMember& m : members_) {
    const bool large = m.size >= kIn64, far = m.offset >= kIn64;
    ByteWriter w;
    w.Word(kCentral);
    w.Word(kVersion);
    w.Word(kVersion);
    w.Word(kUtf8);
    w.Word(kStored);
    w.Word(uint16_t{0});
    w.Word(kDate);
    w.Word(m.crc);
    for (int i = 0; i < 2; ++i) w.Word(large ? kIn64 : static_cast<uint32_t>(m.size));
    w.Word(static_cast<uint16_t>(m.name.size()));
    w.Word(static_cast<uint16_t>(large || far ? 4 + (large ? 16 : 0) + (far ? 8 : 0) : 0));
    w.Word(uint16_t{0});
    w.Word(uint32_t{0});
    w.Word(uint32_t{0});
    w.Word(far ? kIn64 : static_cast<uint32_t>(m.offset));
    out += w.Take() + m.name;
    if (large || far) {
      w.Word(kExtra64);
      w.Word(static_cast<uint16_t>((large ? 16 : 0) + (far ? 8 : 0)));
      if (large) w.Word(m.size);
      if (large) w.Word(m.size);
      if (far) w.Word(m.offset);
      out += w.Take();
    }
  }
  const auto count = static_cast<uint64_t>(members_.size()), bytes = uint64_t{out.size()};
  ByteWriter w;
  if (count >= kCount64 || bytes >= kIn64 || at_ >= kIn64) {
    w.Word(kEnd64);
    w.Word(uint64_t{kEnd64Bytes - 12});
    w.Word(kVersion);
    w.Word(kVersion);
    w.Word(uint64_t{0});  // disks
    w.Word(count);
    w.Word(count);
    w.Word(bytes);
    w.Word(at_);
    w.Word(kLocator64);
    w.Word(uint32_t{0});
    w.Word(static_cast<uint64_t>(at_) + bytes);
    w.Word(uint32_t{1});
  }
  w.Word(kEnd);
  w.Word(uint32_t{0});
  for (int i = 0; i < 2; ++i) w.Word(static_cast<uint16_t>(std::min<uint64_t>(count, kCount64)));
  w.Word(static_cast<uint32_t>(std::min<uint64_t>(bytes, kIn64)));
  w.Word(static_cast<uint32_t>(std::min<uint64_t>(static_cast<uint64_t>(at_), kIn64)));
  w.Word(uint16_t{0});
  return sink_->Append(out + w.Take());
}

}  // namespace telegrad
