#include "server/serving/model_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/base/status.h"

namespace telegrad {
namespace {

absl::Status FileError(std::string_view name) {
  const int error = errno;
  const std::string what = StrCat("'", name.substr(0, 256), "': ", std::strerror(error));
  if (error == ENOENT) return absl::NotFoundError(what);
  if (error == ENOTDIR || error == ELOOP || error == EXDEV) {
    return FailedPrecondition(what, "; models are folders and files without links");
  }
  return absl::UnavailableError(what);
}

bool IsFolder(int fd) {
  struct stat about{};
  return fstat(fd, &about) == 0 && S_ISDIR(about.st_mode);
}

}  // namespace

bool IsModelName(std::string_view name) {
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 255 && name.front() != '.' &&
         std::ranges::all_of(name, allowed);
}

absl::StatusOr<ModelFolder> ModelFolder::Open(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return FileError(path);
  return ModelFolder(std::move(fd));
}

absl::StatusOr<UniqueFd> ModelFolder::OpenBelow(std::string_view name, int flags) const {
  open_how how{};
  how.flags = static_cast<uint64_t>(flags) | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  if (name.find('\0') != std::string_view::npos) return InvalidArgument("a file name with a zero");
  const std::string path(name);
  UniqueFd fd(static_cast<int>(syscall(SYS_openat2, fd_.get(), path.c_str(), &how, sizeof(how))));
  if (!fd.valid()) return FileError(name);
  return fd;
}

// The path of a name from the top of the files of a load.
std::string ModelFolder::Given(std::string_view name) const {
  return below_.empty() ? std::string(name) : StrCat(below_, "/", name);
}

absl::StatusOr<ModelFolder> ModelFolder::Folder(std::string_view name) const {
  if (given_ != nullptr) {
    if (given_->IsFolder(Given(name))) return ModelFolder(given_, Given(name));
    return NotFound("'", Clip(name, 256), "' is not among the folders that the load brought along");
  }
  TG_ASSIGN_OR_RETURN(UniqueFd fd, OpenBelow(name, O_RDONLY | O_DIRECTORY));
  return ModelFolder(std::move(fd));
}

absl::StatusOr<std::vector<std::string>> ModelFolder::Folders() const {
  if (given_ != nullptr) return given_->Folders(below_);
  TG_ASSIGN_OR_RETURN(UniqueFd again, OpenBelow(".", O_RDONLY | O_DIRECTORY));
  const int fd = again.release();
  DIR* const directory = fdopendir(fd);
  if (directory == nullptr) {
    close(fd);
    return FileError(".");
  }
  std::vector<std::string> out;
  while (const dirent* entry = readdir(directory)) {
    const std::string_view name = entry->d_name;
    if (!IsModelName(name)) continue;
    const auto opened = OpenBelow(name, O_PATH | O_DIRECTORY);
    if (opened.ok() && IsFolder(opened->get())) out.emplace_back(name);
  }
  closedir(directory);
  std::ranges::sort(out);
  return out;
}

bool ModelFolder::Has(std::string_view name) const {
  if (given_ != nullptr) return given_->IsFile(Given(name)) || given_->IsFolder(Given(name));
  return OpenBelow(name, O_PATH).ok();
}

absl::StatusOr<ModelFile> ModelFolder::OpenFile(std::string_view name) const {
  if (given_ != nullptr) {
    TG_ASSIGN_OR_RETURN(auto content, given_->Open(Given(name)));
    return ModelFile(std::move(content));
  }
  // Not blocked by a pipe that somebody has put there.
  TG_ASSIGN_OR_RETURN(UniqueFd fd, OpenBelow(name, O_RDONLY | O_NONBLOCK));
  struct stat about{};
  if (fstat(fd.get(), &about) != 0) return FileError(name);
  if (!S_ISREG(about.st_mode)) return FailedPrecondition("'", name, "' is not a file");
  return ModelFile(std::move(fd));
}

absl::StatusOr<std::string> ModelFolder::Read(std::string_view name, int64_t most) const {
  TG_ASSIGN_OR_RETURN(const ModelFile file, OpenFile(name));
  return file.Read(name, most);
}

absl::StatusOr<std::string> ModelFile::Read(std::string_view name, int64_t most) const {
  struct stat about{};
  if (given_ == nullptr && fstat(fd_.get(), &about) != 0) return FileError(name);
  const auto size = given_ == nullptr ? about.st_size : static_cast<int64_t>(given_->size());
  if (size > most) {
    return ResourceExhausted("'", name, "' has ", size, " bytes; ", most, " are allowed");
  }
  if (given_ != nullptr) return *given_;
  std::string out(static_cast<size_t>(size), '\0');
  for (size_t at = 0; at < out.size();) {
    const ssize_t n = pread(fd_.get(), out.data() + at, out.size() - at, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return FileError(name);
    if (n == 0) return FailedPrecondition("'", name, "' became shorter while it was read");
    at += static_cast<size_t>(n);
  }
  return out;
}

uint64_t ModelFolder::Stamp(std::string_view name) const {
  if (given_ != nullptr) return Has(name) ? 1 : 0;
  const auto fd = OpenBelow(name, O_PATH);
  struct stat about{};
  if (!fd.ok() || fstat(fd->get(), &about) != 0) return 0;
  uint64_t stamp = 1;
  for (const auto part : {static_cast<uint64_t>(about.st_size), static_cast<uint64_t>(about.st_ino),
                          static_cast<uint64_t>(about.st_mtim.tv_sec),
                          static_cast<uint64_t>(about.st_mtim.tv_nsec)}) {
    stamp = Mix64(stamp, part);
  }
  return stamp;
}

absl::StatusOr<std::string> ModelSource::ReadSame(std::string_view name) {
  std::shared_ptr<const ModelFile> known;
  {
    const MutexLock lock(mutex_);
    if (const auto it = sources_.find(name); it != sources_.end()) known = it->second.file;
  }
  if (known == nullptr) {
    TG_ASSIGN_OR_RETURN(ModelFile opened, folder_->OpenFile(name));
    known = std::make_shared<const ModelFile>(std::move(opened));
  }
  TG_ASSIGN_OR_RETURN(std::string bytes, known->Read(name, kMaxModelBytes));
  const Digest digest = Sha256(bytes);
  const MutexLock lock(mutex_);
  const auto [it, fresh] = sources_.emplace(name, Source{known, digest});
  if (fresh || it->second.digest == digest) return bytes;
  return FailedPrecondition("'", name,
                            "' was written to since the model was loaded; load it again, "
                            "and replace files as a whole");
}

absl::StatusOr<std::shared_ptr<ModelSource::Content>> ModelSource::Read() {
  auto out = std::make_shared<Content>();
  TG_ASSIGN_OR_RETURN(out->file, ReadSame(file_));
  return out;
}

absl::StatusOr<std::string_view> ModelSource::ReadOther(Content& content, std::string_view name) {
  auto it = content.others.find(name);
  if (it == content.others.end()) {
    TG_ASSIGN_OR_RETURN(std::string bytes, ReadSame(name));
    it = content.others.emplace(name, std::move(bytes)).first;
  }
  return std::string_view(it->second);
}

}  // namespace telegrad
