// Writing and reading the tiled layouts; see layouts.h for what they are.
#pragma once
#include <string>

#include "stored_blocks.h"

namespace memra {

class Pool;
class Arena;

// Repacks a stored matrix into tiles, in parallel. Throws std::runtime_error naming a NaN or infinite scale's row.
Weight repack(Pool& pool, Arena& arena, const StoredType& type, const uint8_t* stored, int rows, int cols);

// Reads every weight back as float32, `[rows, cols]`.
void unpack(Pool& pool, const Weight& weight, float* out);

}  // namespace memra
