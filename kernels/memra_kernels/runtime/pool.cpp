#include "pool.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>

namespace memra {

Pool::Pool(int threads, int spin_us) : threads_(threads), spin_us_(spin_us), pid_(getpid()) {
  if (threads < 1 || threads > 64) throw std::invalid_argument("the number of threads must lie between 1 and 64");
  busy_ = std::vector<Busy>((size_t)threads);
  // New threads inherit the mask: with all signals blocked here, Python's handlers never run on a worker.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    for (int thread = 1; thread < threads; thread++) workers_.emplace_back(&Pool::worker, this, thread);
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    quit_ = true;
    generation_.fetch_add(1);
    generation_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    throw;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Pool::~Pool() {
  if (getpid() != pid_) {  // the workers stayed in the parent: there is nobody to join
    for (std::thread& worker : workers_) worker.detach();
    return;
  }
  quit_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void Pool::check_process() const {
  if (getpid() != pid_) throw std::runtime_error("the engine's threads do not survive fork(): build it after forking");
}

void Pool::run(Job& job, const JobCounts& counts) {
  check_process();
  // Odd while the announcement changes: a late worker that copies a mixture sees another generation afterwards.
  const uint32_t generation = generation_.load(std::memory_order_relaxed) + 2;
  generation_.store(generation - 1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  announcement_.job.store(&job, std::memory_order_relaxed);
  for (int i = 0; i < step_counts; i++) announcement_.counts[i].store(counts.value[i], std::memory_order_relaxed);
  generation_.store(generation, std::memory_order_seq_cst);
  if (threads_ > 1) generation_.notify_all();
  job.work(0, generation, counts);
}

void Pool::quiesce() {
  if (getpid() != pid_) return;
  // From here on a worker that wakes up finds no job.
  announcement_.job.store(nullptr, std::memory_order_relaxed);
  generation_.fetch_add(2, std::memory_order_seq_cst);
  for (Busy& busy : busy_) {
    while (busy.value.load(std::memory_order_seq_cst)) sched_yield();
  }
}

void Pool::take_part(int thread, uint32_t generation) {
  busy_[(size_t)thread].value.store(true, std::memory_order_seq_cst);
  Job* job = announcement_.job.load(std::memory_order_relaxed);
  JobCounts counts;
  for (int i = 0; i < step_counts; i++) counts.value[i] = announcement_.counts[i].load(std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (generation_.load(std::memory_order_seq_cst) == generation && job) job->work(thread, generation, counts);
  busy_[(size_t)thread].value.store(false, std::memory_order_release);
}

uint32_t Pool::wait_for_news(uint32_t seen) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(spin_us_);
  for (int spins = 1;; spins++) {
    const uint32_t now = generation_.load(std::memory_order_acquire);
    if (now != seen && (now % 2 == 0 || quit_.load(std::memory_order_relaxed))) return now;
    cpu_pause();
    if (spins % 64 == 0 && std::chrono::steady_clock::now() > until) generation_.wait(now);
  }
}

void Pool::worker(int thread) {
  for (uint32_t seen = 0;;) {
    seen = wait_for_news(seen);
    if (quit_.load(std::memory_order_acquire)) return;
    take_part(thread, seen);
  }
}

}  // namespace memra
