// The metrics as a Prometheus page over HTTP: http://HOST:PORT/metrics.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/admin/metrics.h"

namespace telegrad {

class MetricsExporter {
 public:
  // `metrics` must outlive it. UNAVAILABLE when the address cannot be listened on. Port 0 takes a
  // free one.
  static absl::StatusOr<std::unique_ptr<MetricsExporter>> Start(const std::string& address,
                                                                Metrics* metrics);
  ~MetricsExporter();
  int port() const;

 private:
  struct Impl;
  explicit MetricsExporter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace telegrad
