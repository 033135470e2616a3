#include "engine/compile/worker_protocol.h"

#include "engine/base/byte_codec.h"
#include "engine/base/status.h"

namespace telegrad {
namespace {

absl::Status Malformed(std::string_view what) {
  return absl::DataLossError(StrCat("a malformed ", what));
}

}  // namespace

std::string Encode(const WorkerHello& hello) {
  ByteWriter out;
  out.Word(hello.protocol);
  out.Text(hello.identity);
  return out.Take();
}

std::string Encode(const WorkerRequest& request) {
  ByteWriter out;
  out.Word(request.id);
  out.Text(request.name);
  out.Text(request.target.Key());
  out.Text(request.source);
  return out.Take();
}

std::string Encode(const WorkerAnswer& answer) {
  ByteWriter out;
  out.Word(answer.id);
  out.Word(static_cast<int32_t>(answer.image.status().code()));
  if (answer.image.ok()) {
    out.Text(answer.image->name);
    out.Text(answer.image->binary);
    Write(answer.image->signature, &out);
  } else {
    out.Text(ToStd(answer.image.status().message()));
  }
  return out.Take();
}

absl::StatusOr<WorkerHello> DecodeHello(std::string_view bytes) {
  ByteReader in(bytes);
  WorkerHello hello;
  hello.protocol = in.Word<uint32_t>();
  hello.identity = in.Text();
  if (!in.Done()) return Malformed("hello");
  return hello;
}

absl::StatusOr<WorkerRequest> DecodeRequest(std::string_view bytes) {
  ByteReader in(bytes);
  WorkerRequest request;
  request.id = in.Word<uint64_t>();
  request.name = in.Text();
  const auto target = Target::FromKey(in.Text());
  request.source = in.Text();
  if (!in.Done() || !target) return Malformed("request");
  request.target = *target;
  return request;
}

absl::StatusOr<WorkerAnswer> DecodeAnswer(std::string_view bytes) {
  ByteReader in(bytes);
  const auto id = in.Word<uint64_t>();
  const auto code = in.Word<int32_t>();
  const std::string first(in.Text());
  if (code != 0) {
    if (!in.Done() || code < 0 || code > static_cast<int32_t>(absl::StatusCode::kUnauthenticated)) {
      return Malformed("answer");
    }
    return WorkerAnswer{id, absl::Status(static_cast<absl::StatusCode>(code), first)};
  }
  ProgramImage image{.name = first, .binary = std::string(in.Text())};
  image.signature = ReadSignature(&in);
  if (!in.Done()) return Malformed("answer");
  return WorkerAnswer{id, std::move(image)};
}

}  // namespace telegrad
