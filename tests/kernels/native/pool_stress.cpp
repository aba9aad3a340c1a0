// Steps of changing size on one pool, two jobs in turn and parallel loops between: every item runs once, every tail
// once, and nothing is seen half done. Compiled with ThreadSanitizer by test_thread_sanitizer.py.
// Arguments: threads, steps.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "runtime/pool.h"

namespace {

constexpr int num_operations = 7;

struct CountingJob final : memra::Job {
  explicit CountingJob(int threads) : items(64, 0) {
    for (int i = 0; i < num_operations; i++) claims.emplace_back(new memra::Claims(threads));
  }

  void work(int thread, uint32_t generation, const memra::JobCounts& counts) override {
    for (auto& operation : claims) {
      // Plain memory: an item that two threads ran, or an operation that began too early, is a race.
      const auto item = [&](int i) { items[(size_t)i]++; };
      if (!operation->share(counts.value[0], thread, generation, item, [&] { tails++; })) return;
    }
  }

  std::vector<std::unique_ptr<memra::Claims>> claims;
  std::vector<long> items;
  long tails = 0;
};

}  // namespace

int main(int, char** arguments) {
  const int threads = std::atoi(arguments[1]), steps = std::atoi(arguments[2]);
  memra::Pool pool(threads, 50);
  CountingJob first(threads), second(threads);
  std::vector<long> wanted(64, 0);
  for (int step = 0; step < steps; step++) {
    const int count = step % 37 + 1;
    pool.run(first, memra::JobCounts{{count}});
    for (int i = 0; i < count; i++) wanted[(size_t)i] += num_operations;
    if (first.items != wanted) return std::printf("wrong items in step %d\n", step), 1;
    if (step % 3 == 0) pool.run(second, memra::JobCounts{{count}});
    if (step % 50 == 0) pool.for_each(64, [&](int i) { wanted[(size_t)i] += 0; });
  }
  if (first.tails != (long)steps * num_operations) return std::puts("wrong tails"), 1;
  pool.quiesce();
  std::puts("sound");
}
