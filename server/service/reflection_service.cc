// A request is answered before the next one is read, so that a stream holds at most one message.
// Only files that a served method needs are returned, not all that are linked in.
#include "server/service/reflection_service.h"

#include <set>
#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/descriptor.pb.h"
#include "grpc/reflection/v1alpha/reflection.pb.h"
#include "server/service/unary_call.h"

namespace telegrad {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using grpc::reflection::v1alpha::ServerReflectionRequest;
using grpc::reflection::v1alpha::ServerReflectionResponse;

constexpr std::string_view kPaths[] = {
#define METHOD(path, ...) path,
#include "server/service/methods.def"
#undef METHOD
};

// "/package.Service/Method" without its ends.
std::string_view ServiceOf(std::string_view path) { return path.substr(1, path.rfind('/') - 1); }

const std::set<std::string_view>& ServiceNames() {
  static const auto* const names = [] {
    auto* all = new std::set<std::string_view>;
    for (const std::string_view path : kPaths) all->insert(ServiceOf(path));
    return all;
  }();
  return *names;
}

// The files in which the services stand and those that they import, imports first.
const std::vector<const FileDescriptor*>& Files() {
  static const auto* const files = [] {
    auto* all = new std::vector<const FileDescriptor*>;
    std::set<const FileDescriptor*> seen;
    std::vector<const FileDescriptor*> todo;
    for (const std::string_view name : ServiceNames()) {
      const auto* service = DescriptorPool::generated_pool()->FindServiceByName(std::string(name));
      if (service != nullptr) todo.push_back(service->file());
    }
    while (!todo.empty()) {
      const FileDescriptor* file = todo.back();
      todo.pop_back();
      if (!seen.insert(file).second) continue;
      all->push_back(file);
      for (int i = 0; i < file->dependency_count(); ++i) todo.push_back(file->dependency(i));
    }
    return all;
  }();
  return *files;
}

const FileDescriptor* Ours(const FileDescriptor* file) {
  for (const FileDescriptor* ours : Files()) {
    if (ours == file) return file;
  }
  return nullptr;
}

void SetError(grpc::StatusCode code, const char* message, ServerReflectionResponse* response) {
  response->mutable_error_response()->set_error_code(code);
  response->mutable_error_response()->set_error_message(message);
}

// A file with what it imports.
void SetFile(const FileDescriptor* file, ServerReflectionResponse* response) {
  if (file == nullptr) return SetError(grpc::StatusCode::NOT_FOUND, "not found", response);
  std::set<const FileDescriptor*> seen;
  std::vector<const FileDescriptor*> todo = {file};
  while (!todo.empty()) {
    const FileDescriptor* at = todo.back();
    todo.pop_back();
    if (!seen.insert(at).second) continue;
    google::protobuf::FileDescriptorProto proto;
    at->CopyTo(&proto);
    response->mutable_file_descriptor_response()->add_file_descriptor_proto(
        proto.SerializeAsString());
    for (int i = 0; i < at->dependency_count(); ++i) todo.push_back(at->dependency(i));
  }
}

ServerReflectionResponse ReflectionOf(const ServerReflectionRequest& request) {
  const DescriptorPool& pool = *DescriptorPool::generated_pool();
  ServerReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kListServices:
      for (const std::string_view name : ServiceNames()) {
        response.mutable_list_services_response()->add_service()->set_name(std::string(name));
      }
      break;
    case ServerReflectionRequest::kFileByFilename:
      SetFile(Ours(pool.FindFileByName(request.file_by_filename())), &response);
      break;
    case ServerReflectionRequest::kFileContainingSymbol:
      SetFile(Ours(pool.FindFileContainingSymbol(request.file_containing_symbol())), &response);
      break;
    default:
      SetError(grpc::StatusCode::UNIMPLEMENTED, "these messages have no extensions", &response);
  }
  return response;
}

class InfoCall final : public RawStream {
 public:
  explicit InfoCall(grpc::ServerContextBase* context) : context_(context) { StartRead(&message_); }
  void OnReceived(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    ServerReflectionRequest request;
    if (message_.Length() > kMaxUnaryBytes || !ParseMessage(message_, &request).ok()) {
      return Finish({grpc::StatusCode::INVALID_ARGUMENT, "not a ServerReflectionRequest"});
    }
    message_ = SerializeMessage(ReflectionOf(request));
    StartWrite(&message_);
  }
  void OnSent(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    StartRead(&message_);
  }
  void OnDrain() override { End(absl::OkStatus()); }
  void End(absl::Status) override { context_->TryCancel(); }  // what is under way fails
  void OnOver() override { delete this; }

 private:
  grpc::ServerContextBase* const context_;  // until OnOver
  grpc::ByteBuffer message_;
};

}  // namespace

RawStream* ReflectionService::Info(grpc::ServerContextBase* context, Caller) {
  return new InfoCall(context);
}

bool IsService(std::string_view name) { return ServiceNames().contains(name); }

}  // namespace telegrad
