// The one way into the daemon: every call of every listener arrives here, and a handler sees it
// only after its caller was authenticated and authorized. The methods are the rows of methods.def.
//
//   Unary   absl::Status Class::Method(const Caller&, const Request&, Response*)
//           on a thread of the transport: it does not wait.
//   Stream  RawStream* Class::Method(grpc::ServerContextBase*, Caller)
//           the stream owns itself until OnOver.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "engine/base/account.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/grpcpp.h"
#include "server/admin/limited_log.h"
#include "server/admin/metrics.h"
#include "server/identity/authenticator.h"
#include "server/service/raw_stream.h"
#include "server/tenant/tenant.h"

namespace telegrad {

class AdminService;
class ComputeService;
class Connections;
class DataService;
class HealthService;
class InferenceService;
class ReflectionService;
class SessionService;

// Whose member functions the rows of methods.def name.
using Services = std::tuple<AdminService*, SessionService*, ComputeService*, DataService*,
                            HealthService*, ReflectionService*, InferenceService*>;

struct Caller {
  Principal principal;
  std::shared_ptr<Tenant> tenant;  // null where the method is open to anyone
  std::string peer;                // for the log
  // What made it known, for streams that go on elsewhere; null where nobody was asked.
  std::shared_ptr<const CallWatch::Known> known = nullptr;
};

enum class Access { kAnyone, kCaller, kAdmin };
// Where a method is served; a set of them is an unsigned.
enum Listener : unsigned { kOnCompute = 1, kOnData = 2, kOnAdmin = 4, kOnAll = 7 };

// As what a call counts in the quotas of its tenant: as a request; as a stream while it is open,
// whose requests count when they come; or as nothing, because it gives back or keeps what the
// tenant has.
enum class Counts { kRequest, kStream, kNothing };

struct MethodHandler {
  RawStream* (*start)(const Services&, grpc::ServerContextBase*, Caller);
  Counts counts;
};

struct Method {
  std::string_view path;
  Access access;
  unsigned listeners;
  MethodHandler handler;
};

class Router {
 public:
  // The tenant of that name, for whom tenant `front` acts, unless that is empty; RESOURCE_EXHAUSTED
  // and the like are told to the caller.
  using FindTenant = std::function<absl::StatusOr<std::shared_ptr<Tenant>>(
      const std::string& name, const std::string& front)>;

  // Of one listener. What is pointed to outlives it.
  Router(Listener listener, const Services& services, Authenticator* authenticator,
         FindTenant find_tenant, ResetGuard* guard, Connections* connections, CallWatch* watch,
         const Clock* clock = Clock::Steady());

  // With the labels method and listener; "none" stands for all that is no method here, or not for
  // this caller.
  std::vector<LabelledMetric::Sample> CallTimes() const;

  // The handler of a call, which owns itself until OnOver; see CallQueue.
  RawStream* Open(grpc::GenericServerContext* context);

 private:
  absl::StatusOr<RawStream*> Start(grpc::GenericServerContext& context, const std::string& peer,
                                   std::shared_ptr<const CallWatch::Known>* known,
                                   Reservation* stream);

  const unsigned listener_;
  const Services services_;
  Authenticator* const authenticator_;
  const FindTenant find_tenant_;
  ResetGuard* const guard_;
  Connections* const connections_;
  CallWatch* const watch_;
  const Clock* const clock_;
  LimitedLog unauthenticated_, denied_;
  absl::flat_hash_map<std::string_view, const Method*> methods_;
  // One for each method, and one for calls that are refused before their method is looked at.
  std::vector<std::unique_ptr<Histogram>> times_;
};

}  // namespace telegrad
