// Zip archives: those that Python writes, and hostile ones.
#include "engine/frontend/io/zip.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "engine/frontend/io/npy.h"
#include "engine/frontend/io/test_files.h"

namespace telegrad {
namespace {

using testing::ExpectRefused;
using testing::Filled;
using testing::LoadAll;
using testing::Written;

TEST(Zip, ReadsWhatNumpyWrites) {
  const auto expected = OpenTensorFile("tests/data/state/expected.safetensors");
  ASSERT_TRUE(expected.ok()) << expected.status();
  size_t compared = 0;
  for (const char* name : {"stored.npz", "deflated.npz", "zip64.npz"}) {
    const auto file = OpenTensorFile(StrCat("tests/data/state/", name));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->format(), "npz");
    for (const TensorEntry& entry : (*file)->tensors()) {
      const auto want = (*expected)->Load(StrCat(name, "/", entry.name));
      ASSERT_TRUE(want.ok()) << want.status();
      EXPECT_EQ(*(*file)->Load(entry), *want) << name << " " << entry.name;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 8u + 7u + 2u);
}

std::string Deflate(std::string_view content) {
  std::string out(content.size() + content.size() / 100 + 100, '\0');
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// A member as an archive says it is, which may be otherwise.
struct Member {
  std::string name, data;
  uint64_t size = 0;
  uint32_t crc = 0;
  uint16_t method = 0, flags = 0;
  std::optional<uint64_t> stored = {}, offset = {};  // as the directory says
  std::string extra = {};
};

Member Stored(std::string name, std::string data) {
  const auto crc =
      static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size()));
  const uint64_t size = data.size();
  return {.name = std::move(name), .data = std::move(data), .size = size, .crc = crc};
}
Member Deflated(std::string name, const std::string& data) {
  Member out = Stored(std::move(name), data);
  out.data = Deflate(data);
  out.method = 8;
  return out;
}

std::string Archive(const std::vector<Member>& members, int more_members = 0) {
  std::string out, directory;
  for (const Member& m : members) {
    const uint64_t at = out.size();
    ByteWriter local, central;
    local.Word(uint32_t{0x04034b50});
    central.Word(uint32_t{0x02014b50});
    central.Word(uint16_t{20});
    for (ByteWriter* w : {&local, &central}) {
      w->Word(uint16_t{20});
      w->Word(m.flags);
      w->Word(m.method);
      w->Word(uint32_t{0});
      w->Word(m.crc);
      w->Word(static_cast<uint32_t>(m.stored.value_or(m.data.size())));
      w->Word(static_cast<uint32_t>(m.size));
      w->Word(static_cast<uint16_t>(m.name.size()));
      w->Word(static_cast<uint16_t>(w == &central ? m.extra.size() : 0));
    }
    central.Word(uint16_t{0});
    central.Word(uint64_t{0});
    central.Word(static_cast<uint32_t>(m.offset.value_or(at)));
    out += local.Take() + m.name + m.data;
    directory += central.Take() + m.name + m.extra;
  }
  ByteWriter end;
  end.Word(uint32_t{0x06054b50});
  end.Word(uint32_t{0});
  end.Word(static_cast<uint16_t>(members.size()));
  end.Word(static_cast<uint16_t>(members.size() + static_cast<size_t>(more_members)));
  end.Word(static_cast<uint32_t>(directory.size()));
  end.Word(static_cast<uint32_t>(out.size()));
  end.Word(uint16_t{0});
  return out + directory + end.Take();
}

std::string NpyFile(const HostTensor& tensor) {
  return Written([&](ByteSink* sink) { return WriteNpy(tensor, sink); });
}

template <typename Change>
std::string With(Member member, const Change& change) {
  change(member);
  return Archive({member});
}

TEST(Zip, InflatesMoreThanItsBuffersHold) {
  const HostTensor noise = Filled(DType::kUInt8, {300'000}, 1);
  HostTensor zeros = {DType::kFloat32, {1 << 20}, std::string(4 << 20, '\0')};
  const auto tensors =
      LoadAll(Archive({Deflated("noise.npy", NpyFile(noise)), Deflated("zeros.npy", NpyFile(zeros)),
                       Stored("plain.npy", NpyFile(noise))}),
              16 << 20);
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->at("noise"), noise);
  EXPECT_EQ(tensors->at("plain"), noise);
  EXPECT_EQ(tensors->at("zeros"), zeros);
}

TEST(Zip, RefusesWhatIsMalformed) {
  using enum absl::StatusCode;
  const std::string npy = NpyFile(Filled(DType::kUInt8, {20'000}, 1));
  const std::string zeros = NpyFile({DType::kUInt8, {1 << 20}, std::string(1 << 20, '\0')});
  const Member stored = Stored("a.npy", npy), deflated = Deflated("a.npy", npy),
               small = Deflated("a.npy", zeros);
  ASSERT_TRUE(LoadAll(Archive({stored})).ok());
  ASSERT_TRUE(LoadAll(Archive({deflated})).ok());
  // A member within the data of another, and two at one place.
  const Member outer = Stored("b.npy", Archive({stored}));
  Member inner = stored, again = stored;
  inner.offset = 35;
  again.offset = 0;
  const std::string zip64(std::string_view("\1\0\10\0\0\0\0\0\0\0\0\x80", 12));  // 2^63
  const struct {
    std::string file;
    absl::StatusCode code;
    std::string message;
  } cases[] = {
      {"PK\3\4", kInvalidArgument, "no end record"},
      {Archive({stored}).substr(5), kInvalidArgument, "it begins with the bytes"},
      {Archive({stored}) + "x", kInvalidArgument, "no end record"},
      {Archive({Stored(std::string(60, 'a') + ".npy", npy)}, 1), kInvalidArgument,
       "no member where one is due"},
      {Archive({stored}, 9), kInvalidArgument, "a directory of 10 members"},
      {Archive({stored, stored}), kInvalidArgument, "'a.npy' appears twice"},
      {Archive({outer, inner}), kInvalidArgument, "members overlap"},
      {Archive({stored, again}), kInvalidArgument, "of which others are used already"},
      {With(stored, [](Member& m) { m.offset = 1; }), kInvalidArgument, "no header of 'a.npy'"},
      {With(stored, [](Member& m) { m.offset = 0xfffffff0; }), kInvalidArgument,
       "no header of 'a.npy'"},
      {With(stored, [](Member& m) { m.size += 7, m.stored = m.size; }), kInvalidArgument,
       "has the bytes"},
      {With(stored, [](Member& m) { m.size += 7; }), kInvalidArgument, "stored ones"},
      {With(stored, [](Member& m) { m.flags = 1; }), kUnimplemented, "is encrypted"},
      {With(stored, [](Member& m) { m.method = 12; }), kUnimplemented, "method 12"},
      {With(stored, [&](Member& m) { m.size = 0xffffffff, m.extra = zip64; }), kInvalidArgument,
       "9223372036854775808 bytes of content"},
      {With(stored, [&](Member& m) { m.offset = 0xffffffff, m.extra = zip64; }), kInvalidArgument,
       "'a.npy' has"},
      {With(stored, [&](Member& m) { m.stored = 0xffffffff, m.extra = zip64.substr(0, 7); }),
       kInvalidArgument, "extra field"},
      {With(stored, [](Member& m) { m.extra = std::string("\2\0\377\377", 4); }), kInvalidArgument,
       "extra field leaves"},
      {With(Stored(std::string("a\0b.npy", 7), npy), [](Member&) {}), kInvalidArgument, "a\\000b"},
      {With(Stored(".npy", npy), [](Member&) {}), kInvalidArgument, "without a name"},
      {With(Stored("a.txt", npy), [](Member&) {}), kInvalidArgument, "is not a .npy file"},
      {With(Stored("a.npy", "junk"), [](Member&) {}), kInvalidArgument, "'a.npy': npy: no magic"},
      // Bombs: more content than is declared, than is there, than can be there.
      {With(small, [](Member& m) { m.size = uint64_t{1} << 31; }), kInvalidArgument,
       "which cannot hold them"},
      {With(small, [](Member& m) { m.size -= 1000; }), kInvalidArgument, "bytes of data for u8"},
      {With(deflated, [](Member& m) { m.crc ^= 1; }), kInvalidArgument, "the directory says"},
      {With(deflated, [](Member& m) { m.data[5000] ^= 0x55; }), kInvalidArgument, ""},
      {With(deflated, [](Member& m) { m.data.resize(m.data.size() / 2); }), kInvalidArgument,
       "damaged after"},
      {With(deflated, [](Member& m) { m.data = Deflate("short"); }), kInvalidArgument, "'a.npy'"},
  };
  for (const auto& c : cases) ExpectRefused(c.file, c.code, c.message);
}

TEST(Zip, WritesZip64WhereItMust) {
  ByteWriter unused;
  StringSink sink;
  ZipWriter zip(&sink);
  constexpr int kMembers = 70'000;  // more than 16 bits count
  const HostTensor one = Filled(DType::kUInt8, {1}, 1);
  const std::string npy = NpyFile(one);
  for (int i = 0; i < kMembers; ++i) ASSERT_TRUE(zip.Add(StrCat(i, ".npy"), {npy}).ok());
  ASSERT_TRUE(zip.Finish().ok());
  const auto directory = ReadZipDirectory(*MemorySource(sink.bytes()));
  ASSERT_TRUE(directory.ok()) << directory.status();
  EXPECT_EQ(directory->members.size(), static_cast<size_t>(kMembers));
  EXPECT_EQ(*ReadZipMember(*MemorySource(sink.bytes()), directory->members.back(), 1 << 20), npy);
}

}  // namespace
}  // namespace telegrad
