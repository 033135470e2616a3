// What memory itself allows: copies with stores that go past the caches, and reads, of one thread
// or several that share the bytes. The floor of tests/bench/memory_rows.py.
//
// Usage: memory_peer copy|read MIBS THREADS
//
// For each line of its input, which is a number of runs, prints the median of their times in ms.
// Where the processor is no x86-64 with AVX, copies are memcpy.
#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

constexpr size_t kLine = 64;

#if defined(__x86_64__)
__attribute__((target("avx"))) void Copy(const char* from, char* to, size_t bytes) {
  for (size_t i = 0; i < bytes; i += kLine) {
    const __m256i low = _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i));
    const __m256i high = _mm256_load_si256(reinterpret_cast<const __m256i*>(from + i + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), low);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i + 32), high);
  }
  _mm_sfence();
}
#else
void Copy(const char* from, char* to, size_t bytes) { std::memcpy(to, from, bytes); }
#endif

// Several streams at a time, because one of them alone waits for memory longer than a core has to.
uint64_t Read(const char* from, size_t bytes) {
  constexpr size_t kStreams = 8;
  const size_t part = bytes / kStreams / kLine * kLine;
  uint64_t sums[kLine / sizeof(uint64_t)] = {};
  const auto add = [&](const char* line) {
    uint64_t words[std::size(sums)];
    std::memcpy(words, line, kLine);
    for (size_t w = 0; w < std::size(sums); ++w) sums[w] += words[w];
  };
  for (size_t i = 0; i < part; i += kLine) {
    for (size_t stream = 0; stream < kStreams; ++stream) add(from + stream * part + i);
  }
  for (size_t i = kStreams * part; i < bytes; i += kLine) add(from + i);
  return std::accumulate(std::begin(sums), std::end(sums), uint64_t{0});
}

struct Free {
  void operator()(char* at) const { std::free(at); }
};
using Bytes = std::unique_ptr<char, Free>;

Bytes Filled(size_t bytes) {
  Bytes out(static_cast<char*>(std::aligned_alloc(4096, bytes)));
  if (out != nullptr) std::memset(out.get(), 1, bytes);
  return out;
}

int Run(bool copy, size_t bytes, size_t threads) {
  const Bytes from = Filled(bytes), to = Filled(bytes);
  if (from == nullptr || to == nullptr) {
    std::fprintf(stderr, "memory_peer: there is no memory for twice %zu bytes\n", bytes);
    return 1;
  }
  const size_t part = bytes / threads / kLine * kLine;
  std::vector<uint64_t> sums(threads);
  bool over = false;
  std::barrier begin(static_cast<std::ptrdiff_t>(threads)),
      end(static_cast<std::ptrdiff_t>(threads));
  const auto work = [&](size_t i) {
    const size_t at = i * part, size = i + 1 == threads ? (bytes - at) / kLine * kLine : part;
    if (copy) return Copy(from.get() + at, to.get() + at, size);
    sums[i] += Read(from.get() + at, size);
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < threads; ++i) {
    others.emplace_back([&, i] {
      while (true) {
        begin.arrive_and_wait();
        if (over) return;
        work(i);
        end.arrive_and_wait();
      }
    });
  }
  for (std::string line; std::getline(std::cin, line);) {
    std::vector<double> times;
    for (int runs = std::max(1, std::atoi(line.c_str())); runs > 0; --runs) {
      const auto start = std::chrono::steady_clock::now();
      begin.arrive_and_wait();
      work(0);
      end.arrive_and_wait();
      times.push_back(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
              .count());
    }
    std::ranges::sort(times);
    std::printf("%g\n", times[times.size() / 2]);
    std::fflush(stdout);
  }
  over = true;
  begin.arrive_and_wait();
  for (std::thread& thread : others) thread.join();
  volatile uint64_t used = std::accumulate(sums.begin(), sums.end(), uint64_t{0});
  (void)used;  // so that no compiler leaves the reads out
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view kind = argc == 4 ? argv[1] : "";
  const long mibs = argc == 4 ? std::atol(argv[2]) : 0,
             threads = argc == 4 ? std::atol(argv[3]) : 0;
  if ((kind != "copy" && kind != "read") || mibs < 1 || mibs > 4096 || threads < 1 ||
      threads > 256) {
    std::fprintf(stderr, "usage: memory_peer copy|read MIBS THREADS\n");
    return 2;
  }
  return Run(kind == "copy", static_cast<size_t>(mibs) << 20, static_cast<size_t>(threads));
}
