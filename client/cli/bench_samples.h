// What a load generator has measured: a sample for each request, and what they say together.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace telegrad::cli {

// Times are of one steady clock. `due_ns` is when the request was to be sent: in an open loop that
// does not depend on how long others take, so that a server that stalls shows in every request that
// was due meanwhile, and not only in the one that it held.
struct BenchSample {
  int32_t tenant = 0, session = 0;
  int64_t due_ns = 0, end_ns = 0;
  bool ok = true;
  int64_t latency_ns() const { return end_ns - due_ns; }
};

// The smallest of `sorted` that `percent` of them do not exceed (the nearest rank); 0 of none.
int64_t Percentile(std::span<const int64_t> sorted, double percent);

// A line for all, and for each tenant where there are several: requests, failures, requests in each
// second, percentiles in milliseconds.
std::string BenchTable(std::span<const BenchSample> samples, std::span<const std::string> tenants);

// How many took how long: a bar for each third of a decade.
std::string BenchPlot(std::span<const BenchSample> samples);

// One line for each: tenant, session, due and end in nanoseconds since the first was due, ok.
std::string BenchCsv(std::span<const BenchSample> samples, std::span<const std::string> tenants);

}  // namespace telegrad::cli
