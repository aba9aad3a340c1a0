// Sharing the items of one operation between threads: claim from the own range, then steal; complete by count.
//
// Every thread owns a contiguous range, so that its reads stay one stream. A claim is a compare-and-swap on
// (generation, next item); the operation is complete when the count of finished items reaches the total. Nobody waits
// for a thread that holds no item: a sleeping thread's range is stolen from. A word of an older generation counts as
// untouched, so nothing is reset between steps; a word of a newer one tells a late thread to leave.
#pragma once
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace memra {

static inline void cpu_pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

class Claims {
 public:
  explicit Claims(int threads) : threads_(threads), next_(new Word[(size_t)threads]) {}

  // Runs item(i) for the i in [0, n) that this thread gets, waits until all n are done, and returns whether the
  // generation is still current. The thread that finishes the last item runs `tail` before the others go on.
  template <class Item, class Tail>
  bool share(int n, int thread, uint32_t generation, Item item, Tail tail) {
    if (n == 0) return true;
    for (int step = 0; step < threads_; step++) {
      const int owner = thread + step < threads_ ? thread + step : thread + step - threads_;
      if (!drain(owner, n, step == 0, generation, item, tail)) return false;
    }
    return wait(n, generation);
  }

 private:
  struct alignas(64) Word {
    std::atomic<uint64_t> value{0};  // generation << 32 | count
  };

  static bool is_newer(uint64_t word, uint32_t generation) {
    return (int32_t)((uint32_t)(word >> 32) - generation) > 0;
  }

  // Items of this generation that the word counts.
  static int count(uint64_t word, uint32_t generation) {
    return (uint32_t)(word >> 32) == generation ? (int)(uint32_t)word : 0;
  }

  template <class Item, class Tail>
  bool drain(int owner, int n, bool is_own, uint32_t generation, Item& item, Tail& tail) {
    const int low = (int)((int64_t)n * owner / threads_), high = (int)((int64_t)n * (owner + 1) / threads_);
    std::atomic<uint64_t>& next = next_[owner].value;
    uint64_t word = next.load(std::memory_order_acquire);
    for (;;) {
      if (is_newer(word, generation)) return false;
      const int first = low + count(word, generation), left = high - first;
      if (left <= 0) return true;
      // Half of the rest while it is the own range (few claims), a quarter of it when stealing (little held back).
      const int size = std::max(1, left / (is_own ? 2 : 4));
      const uint64_t claimed = (uint64_t)generation << 32 | (uint32_t)(first - low + size);
      if (!next.compare_exchange_weak(word, claimed, std::memory_order_acq_rel, std::memory_order_acquire)) continue;
      for (int i = first; i < first + size; i++) item(i);
      finish(size, n, generation, tail);
      word = next.load(std::memory_order_acquire);
    }
  }

  template <class Tail>
  void finish(int size, int n, uint32_t generation, Tail& tail) {
    uint64_t word = done_.value.load(std::memory_order_acquire);
    int done;
    do {
      done = count(word, generation) + size;
      // n counted plus one more, after the tail, is complete: the last finisher first takes the word to n.
    } while (!done_.value.compare_exchange_weak(word, (uint64_t)generation << 32 | (uint32_t)done,
                                                std::memory_order_acq_rel, std::memory_order_acquire));
    if (done < n) return;
    tail();
    done_.value.store((uint64_t)generation << 32 | (uint32_t)(n + 1), std::memory_order_release);
  }

  bool wait(int n, uint32_t generation) {
    for (int spins = 0;;) {
      const uint64_t word = done_.value.load(std::memory_order_acquire);
      if (is_newer(word, generation)) return false;
      if (count(word, generation) > n) return true;
      cpu_pause();
      if (++spins == 200) {  // some 10 us: give the core away in case the last item's thread waits for it
        sched_yield();
        spins = 0;
      }
    }
  }

  int threads_;
  std::unique_ptr<Word[]> next_;
  Word done_;
};

}  // namespace memra
