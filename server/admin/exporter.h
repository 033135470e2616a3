// The metrics as a Prometheus page over HTTP: http://HOST:PORT/metrics.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "server/admin/http_page.h"
#include "server/admin/metrics.h"

namespace telegrad {

// The page's text.
std::string MetricsPage(Metrics& metrics);

class MetricsExporter {
 public:
  // `metrics` must outlive it. UNAVAILABLE when the address cannot be listened on. Port 0 takes a
  // free one.
  static absl::StatusOr<std::unique_ptr<MetricsExporter>> Start(const std::string& address,
                                                                Metrics* metrics);
  int port() const { return page_->port(); }

 private:
  explicit MetricsExporter(std::unique_ptr<HttpPage> page);
  const std::unique_ptr<HttpPage> page_;
};

}  // namespace telegrad
