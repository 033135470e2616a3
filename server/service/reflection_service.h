// grpc.reflection.v1alpha.ServerReflection: the services that methods.def has rows of, and the
// files that describe them and their messages.
#pragma once

#include <string_view>

#include "server/service/router.h"

namespace telegrad {

class ReflectionService {
 public:
  RawStream* Info(grpc::ServerContextBase* context, Caller caller);
};

// Whether methods.def has a row of this service, named with its package.
bool IsService(std::string_view name);

}  // namespace telegrad
