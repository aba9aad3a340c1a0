// Which instruction-set variants this library holds and this processor runs.
#pragma once
#include <string>

#include "kernels.h"

namespace memra {

// Names of the usable variants, best first, with commas between.
std::string usable_variants();

// The kernels of a usable variant, or null.
const KernelTable* find_variant(const std::string& name);

}  // namespace memra
