// The C interface of the sampler, bound by native_sampler.py with ctypes. No call allocates or throws; calls with
// different workspaces may run at the same time.
#include <cstddef>

#include "../../runtime/abi.h"
#include "token_choice.h"
#include "workspace.h"

using namespace memra::sampler;

// Names of the instruction sets that this processor runs, best first; null behind the last.
MEMRA_API const char* memra_sampler_variant(int index) {
  const Passes* passes = usable_passes(index);
  return passes ? passes->name : nullptr;
}

MEMRA_API size_t memra_sampler_workspace_bytes(int vocab_size) { return Workspace::bytes(vocab_size); }

MEMRA_API void memra_sampler_choose(int variant, const Request* request, void* workspace, Answer* answer) {
  choose(*usable_passes(variant), *request, workspace, *answer);
}
