#include "engine/frontend/io/npz.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "engine/base/status.h"
#include "engine/frontend/io/npy.h"
#include "engine/frontend/tensor/host_bytes.h"

namespace telegrad {
namespace {

constexpr std::string_view kSuffix = ".npy";

absl::StatusOr<TensorEntry> ListMember(const ByteSource& source, const ZipMember& member) {
  TG_ASSIGN_OR_RETURN(const std::string head, ReadZipMember(source, member, kNpyHead));
  TG_ASSIGN_OR_RETURN(TensorEntry out, ParseNpyHeader(head, member.size));
  out.name = member.name.substr(0, member.name.size() - kSuffix.size());
  if (!member.deflated) {
    out.offset += member.offset;
    return out;
  }
  if (!out.strides.empty()) {
    return Unimplemented("Fortran order in a compressed member; save it in C order");
  }
  out.deflated = Deflated{.inflated = member.size, .skip = out.offset, .crc = member.crc};
  out.offset = member.offset;
  out.stored = member.stored;
  return out;
}

}  // namespace

absl::StatusOr<TensorListing> ListNpz(const ByteSource& source, const ZipDirectory& zip) {
  TensorListing out{.format = "npz", .tensors = {}, .metadata = {}};
  for (const ZipMember& member : zip.members) {
    if (!std::string_view(member.name).ends_with(kSuffix)) {
      return InvalidArgument("npz: the member '", absl::CEscape(member.name),
                             "' is not a .npy file, and none is a PyTorch file's data.pkl");
    }
    absl::StatusOr<TensorEntry> entry = ListMember(source, member);
    if (!entry.ok()) {
      return absl::Status(entry.status().code(),
                          ToAbsl(StrCat("npz: '", absl::CEscape(member.name),
                                        "': ", ToStd(entry.status().message()))));
    }
    out.tensors.push_back(*std::move(entry));
  }
  return out;
}

absl::Status WriteNpz(const std::map<std::string, HostTensor>& tensors, ByteSink* sink) {
  ZipWriter zip(sink);
  for (const auto& [name, tensor] : tensors) {
    TG_RETURN_IF_ERROR(CheckHostTensor(tensor));
    TG_ASSIGN_OR_RETURN(const std::string header, FormatNpyHeader(tensor.dtype, tensor.shape));
    TG_RETURN_IF_ERROR(zip.Add(StrCat(name, kSuffix), {header, tensor.bytes}));
  }
  return zip.Finish();
}

}  // namespace telegrad
