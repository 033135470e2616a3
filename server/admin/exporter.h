// The metrics as a Prometheus page over HTTP: http://HOST:PORT/metrics.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "server/admin/http_page.h"
#include "server/admin/metrics.h"

namespace telegrad {

// The page's text: in the text form of Prometheus or, with exemplars, in that of OpenMetrics 1.0.
enum class MetricsForm { kPrometheus, kOpenMetrics };
std::string MetricsPage(Metrics& metrics, MetricsForm form = MetricsForm::kPrometheus);

// The form that a reader asks for by its field Accept.
MetricsForm FormFor(std::string_view accept);

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
