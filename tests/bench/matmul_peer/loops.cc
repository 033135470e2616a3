// The plain triple loops that the matmul is measured against: C = A B, float32, row-major, N x N,
// on one thread, with nothing but the compiler's -O3. `ijk` is the textbook's order, `ikj` the one
// that the compiler can vectorize.
//
// Usage: matmul_loops ijk|ikj N REPEATS    prints the median milliseconds
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

void Ijk(const float* a, const float* b, float* c, int n) {
  for (int i = 0; i < n; ++i) {
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int k = 0; k < n; ++k) sum += a[i * n + k] * b[k * n + j];
      c[i * n + j] = sum;
    }
  }
}

void Ikj(const float* a, const float* b, float* __restrict c, int n) {
  std::fill(c, c + n * n, 0.0f);
  for (int i = 0; i < n; ++i) {
    for (int k = 0; k < n; ++k) {
      for (int j = 0; j < n; ++j) c[i * n + j] += a[i * n + k] * b[k * n + j];
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string order = argc == 4 ? argv[1] : "";
  const int n = argc == 4 ? std::atoi(argv[2]) : 0;
  const int repeats = argc == 4 ? std::atoi(argv[3]) : 0;
  if ((order != "ijk" && order != "ikj") || n < 1 || n > 8192 || repeats < 1) {
    std::fprintf(stderr, "Usage: matmul_loops ijk|ikj N REPEATS\n");
    return 2;
  }
  std::vector<float> a(n * n), b(n * n), c(n * n);
  for (int i = 0; i < n * n; ++i) {
    a[i] = static_cast<float>(i % 13) - 6;
    b[i] = static_cast<float>(i % 7) - 3;
  }
  std::vector<double> millis;
  for (int i = 0; i <= repeats; ++i) {  // the first one warms up
    const auto start = std::chrono::steady_clock::now();
    (order == "ijk" ? Ijk : Ikj)(a.data(), b.data(), c.data(), n);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    if (i > 0) millis.push_back(took.count());
  }
  std::sort(millis.begin(), millis.end());
  volatile float used = c[n];
  (void)used;
  std::printf("%.4f\n", millis[millis.size() / 2]);
  return 0;
}
