// Zeroed memory in huge pages, given out once and freed as a whole; the owner of weights, activations and KV pages.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace memra {

class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena();

  // `bytes` zeroed bytes at a multiple of 64; throws std::bad_alloc. At least 64 KiB of readable memory follow, so that
  // kernels may prefetch past the end.
  uint8_t* take(size_t bytes);

  template <class T>
  T* take_array(size_t count) {
    return (T*)take(count * sizeof(T));
  }

  size_t bytes() const { return total_; }

 private:
  struct Region {
    uint8_t* data;
    size_t bytes;
  };
  std::vector<Region> regions_;
  size_t used_ = 0, total_ = 0;  // bytes given out of the last region; of all regions
};

}  // namespace memra
