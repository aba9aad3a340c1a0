#include "arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

namespace memra {
namespace {
constexpr size_t huge_page = 2u << 20;
constexpr size_t region_bytes = 64u << 20;  // matrices share regions of this size; a larger one gets its own
constexpr size_t slack = 64u << 10;

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }
}  // namespace

Arena::~Arena() {
  for (const Region& region : regions_) munmap(region.data, region.bytes);
}

uint8_t* Arena::take(size_t bytes) {
  bytes = round_up(std::max<size_t>(bytes, 1), 64);
  if (regions_.empty() || used_ + bytes + slack > regions_.back().bytes) {
    const size_t size = round_up(std::max(bytes + slack, region_bytes), huge_page);
    // mmap gives 4 KiB alignment: one huge page more, and the ends that do not fit are given back.
    uint8_t* raw =
        (uint8_t*)mmap(nullptr, size + huge_page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) throw std::bad_alloc();
    uint8_t* data = (uint8_t*)round_up((size_t)raw, huge_page);
    if (data > raw) munmap(raw, (size_t)(data - raw));
    if (data < raw + huge_page) munmap(data + size, (size_t)(raw + huge_page - data));
    madvise(data, size, MADV_HUGEPAGE);
    regions_.push_back({data, size});
    used_ = 0;
  }
  uint8_t* taken = regions_.back().data + used_;
  used_ += bytes;
  total_ += bytes;
  return taken;
}

}  // namespace memra
