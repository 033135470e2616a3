// How long the frontend takes to build a graph: a training step (forward, backward, Adam) of a GPT
// of 12 layers and 768 channels, on one thread. Prints ms of processor
// time, the median in the last line.
//
// Usage: frontend_bench [REPEATS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#include "tests/models/models.h"

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::max(1, std::atoi(argv[1])) : 21;
  std::vector<double> seconds;
  unsigned nodes = 0;
  for (int i = 0; i < repeats; ++i) {
    const std::clock_t begin = std::clock();
    const auto plan = telegrad::testing::Gpt2TrainStep(8, 128);
    seconds.push_back(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
    if (!plan.ok()) {
      std::fprintf(stderr, "frontend_bench: %s\n", std::string(plan.status().message()).c_str());
      return 1;
    }
    nodes = plan->graph.graph->size();
  }
  std::ranges::sort(seconds);
  std::printf("%u nodes; best %.3f ms\n%.3f\n", nodes, 1e3 * seconds.front(),
              1e3 * seconds[seconds.size() / 2]);
}
