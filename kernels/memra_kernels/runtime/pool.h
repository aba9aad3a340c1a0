// A fixed set of threads that run one job at a time together with the caller.
//
// A job is any function that can be entered by every thread at once and shares work by claims (claims.h). The caller
// comes back when its own call of the job returns; a job returns only when its work is complete, so a worker that was
// descheduled may still be inside an old job then. It finds nothing left to claim and leaves. `quiesce` waits for such
// workers before memory that a job uses goes away.
//
// Workers spin for `spin_us` after a job, then sleep. They take no signals. After fork() the child owns no workers:
// every call there throws.
#pragma once
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "claims.h"

namespace memra {

constexpr int step_counts = 13;

// What a job needs to divide its work, copied by each thread before it starts.
struct JobCounts {
  int32_t value[step_counts];
};

class Job {
 public:
  virtual ~Job() = default;
  virtual void work(int thread, uint32_t generation, const JobCounts& counts) = 0;
};

class Pool {
 public:
  // `threads` counts the caller; 1 to 64. Throws std::invalid_argument or std::system_error.
  Pool(int threads, int spin_us);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return threads_; }

  // Runs the job on all threads; one caller at a time.
  void run(Job& job, const JobCounts& counts);

  // Waits until no worker is inside a job.
  void quiesce();

  // Calls fn(i) once for each i in [0, n), in no order.
  template <class Fn>
  void for_each(int n, Fn fn);

 private:
  // The newest job; `generation` is stored last. A worker that copies it checks the generation again afterwards.
  struct Announcement {
    std::atomic<Job*> job{nullptr};
    std::atomic<int32_t> counts[step_counts];
  };
  struct alignas(64) Busy {
    std::atomic<bool> value{false};
  };

  void worker(int thread);
  uint32_t wait_for_news(uint32_t seen);
  void take_part(int thread, uint32_t generation);
  void check_process() const;

  int threads_, spin_us_, pid_;
  alignas(64) std::atomic<uint32_t> generation_{0};
  std::atomic<bool> quit_{false};
  Announcement announcement_;
  std::vector<Busy> busy_;
  std::vector<std::thread> workers_;
};

template <class Fn>
void Pool::for_each(int n, Fn fn) {
  struct ForEach final : Job {
    Fn& fn;
    Claims claims;
    ForEach(Fn& f, int threads) : fn(f), claims(threads) {}
    void work(int thread, uint32_t generation, const JobCounts& counts) override {
      claims.share(counts.value[0], thread, generation, fn, [] {});
    }
  } job(fn, threads_);
  run(job, JobCounts{{n}});
  quiesce();
}

}  // namespace memra
