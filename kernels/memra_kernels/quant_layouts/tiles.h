// Writing and reading the tiled layouts; see layouts.h for what they are.
#pragma once
#include <string>

#include "stored_blocks.h"

namespace memra {

class Pool;

// The tiled form of a matrix, without memory. Throws std::invalid_argument where type and shape have none.
Weight tiled_weight(int ggml_type, int rows, int cols);

static inline size_t weight_bytes(const Weight& weight) { return weight.tile_bytes * (size_t)weight.tiles; }

// Repacks a stored matrix into `weight.data`, in parallel; what is there before does not matter. Throws
// std::invalid_argument if `bytes` is not the stored size, std::runtime_error naming a NaN or infinite scale's row.
void repack(Pool& pool, int ggml_type, const uint8_t* stored, size_t bytes, const Weight& weight);

// Reads every weight back as float32, `[rows, cols]`.
void unpack(Pool& pool, const Weight& weight, float* out);

}  // namespace memra
