// A location is opened from its folder one component after the other, none of which may be a link,
// so that nothing that changes in between leads elsewhere.
#include "engine/frontend/onnx/external_data.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_split.h"
#include "engine/base/status.h"

namespace telegrad {
namespace onnx {
namespace {

absl::Status ReadExternal(const ImportOptions& options, TensorProto* tensor) {
  if (!tensor->elsewhere || tensor->location.empty()) return absl::OkStatus();
  const auto where = [&] {
    return StrCat("ONNX: tensor '", tensor->name, "' in '", tensor->location.substr(0, 256), "'");
  };
  if (!options.external) {
    return Unimplemented(where(), ": its elements are in another file, which is not read here; ",
                         "save the model as one file, or import it where the file is");
  }
  const absl::StatusOr<std::string_view> file = options.external(tensor->location);
  if (!file.ok()) {
    return absl::Status(file.status().code(),
                        StrCat(where(), ": ", ToStd(file.status().message())));
  }
  const auto size = static_cast<int64_t>(file->size());
  int64_t length = tensor->length;
  if (length < 0 && tensor->offset <= size) length = size - tensor->offset;
  if (tensor->offset > size || length > size - tensor->offset) {
    return InvalidArgument(where(), ": bytes from ", tensor->offset, " on, ", tensor->length,
                           " of them, of a file of ", size);
  }
  tensor->raw = file->substr(static_cast<size_t>(tensor->offset), static_cast<size_t>(length));
  tensor->has_raw = true;
  tensor->elsewhere = false;
  return absl::OkStatus();
}

absl::Status ReadExternal(const ImportOptions& options, std::vector<Node>* nodes);

absl::Status ReadExternal(const ImportOptions& options, GraphProto* graph) {
  for (TensorProto& t : graph->initializers) TG_RETURN_IF_ERROR(ReadExternal(options, &t));
  return ReadExternal(options, &graph->nodes);
}

// As deep as the parser lets graphs be nested.
absl::Status ReadExternalOf(const ImportOptions& options, std::vector<Attribute>* attributes) {
  for (Attribute& a : *attributes) {
    if (a.t) TG_RETURN_IF_ERROR(ReadExternal(options, &*a.t));
    for (TensorProto& t : a.tensors) TG_RETURN_IF_ERROR(ReadExternal(options, &t));
    if (a.g != nullptr) TG_RETURN_IF_ERROR(ReadExternal(options, a.g.get()));
  }
  return absl::OkStatus();
}

absl::Status ReadExternal(const ImportOptions& options, std::vector<Node>* nodes) {
  for (Node& node : *nodes) TG_RETURN_IF_ERROR(ReadExternalOf(options, &node.attributes));
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadExternal(const ImportOptions& options, Model* model) {
  TG_RETURN_IF_ERROR(ReadExternal(options, static_cast<GraphProto*>(model)));
  for (Function& f : model->functions) {
    TG_RETURN_IF_ERROR(ReadExternalOf(options, &f.defaults));
    TG_RETURN_IF_ERROR(ReadExternal(options, &f.nodes));
  }
  return absl::OkStatus();
}

}  // namespace onnx

namespace {

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { Reset(-1); }
  void Reset(int fd) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

absl::Status Failed(int error) {
  if (error == ENOENT) return NotFound("there is no such file beside the model");
  if (error == ELOOP || error == ENOTDIR) {
    return InvalidArgument("a part of the path is a link, which is not followed");
  }
  return FailedPrecondition(std::strerror(error));
}

}  // namespace

ExternalFiles::~ExternalFiles() {
  for (const auto& [location, file] : files_) {
    if (file.data != nullptr) munmap(file.data, file.size);
  }
}

// The file is read and not mapped: a page of a mapping is gone, and who reads it is killed, when
// somebody else makes the file shorter.
absl::Status ExternalFiles::Read(int fd, Mapping* file) {
  if (file->size == 0) return absl::OkStatus();
  void* const data =
      mmap(nullptr, file->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return ResourceExhausted("cannot hold its ", file->size, " bytes: ", std::strerror(errno));
  }
  file->data = data;
  for (size_t at = 0; at < file->size;) {
    const ssize_t n = read(fd, static_cast<char*>(data) + at, file->size - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Failed(errno);
    if (n == 0) {
      return FailedPrecondition("had ", file->size, " bytes and has ", at,
                                " now: something else has made it shorter");
    }
    at += static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string_view> ExternalFiles::Content(std::string_view location) {
  if (const auto it = files_.find(location); it != files_.end()) {
    return std::string_view(static_cast<const char*>(it->second.data), it->second.size);
  }
  std::vector<std::string> parts;
  for (const absl::string_view piece :
       absl::StrSplit(absl::string_view(location.data(), location.size()), '/')) {
    const std::string_view part(piece.data(), piece.size());
    if (part == ".." || (part.empty() && parts.empty())) {
      return InvalidArgument("leads out of the model's folder");
    }
    if (part.find('\0') != std::string_view::npos) return InvalidArgument("has a byte of 0");
    if (!part.empty() && part != ".") parts.emplace_back(part);
  }
  if (parts.empty()) return InvalidArgument("is no file");
  Descriptor at(open(folder_.empty() ? "." : folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (at.get() < 0) return Failed(errno);
  for (size_t i = 0; i < parts.size(); ++i) {
    const int kind = i + 1 < parts.size() ? O_DIRECTORY : O_NONBLOCK;
    const int next = openat(at.get(), parts[i].c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | kind);
    if (next < 0) return Failed(errno);
    at.Reset(next);
  }
  struct stat info = {};
  if (fstat(at.get(), &info) != 0) return Failed(errno);
  if (!S_ISREG(info.st_mode)) return InvalidArgument("is no regular file");
  Mapping file{nullptr, static_cast<size_t>(info.st_size)};
  if (absl::Status status = Read(at.get(), &file); !status.ok()) {
    if (file.data != nullptr) munmap(file.data, file.size);
    return status;
  }
  files_.emplace(location, file);
  return std::string_view(static_cast<const char*>(file.data), file.size);
}

}  // namespace telegrad
