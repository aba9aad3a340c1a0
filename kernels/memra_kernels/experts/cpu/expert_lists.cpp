#include "expert_lists.h"

namespace memra {

ExpertLists::ExpertLists(int experts, int used, int max_rows)
    : used_(used),
      chosen_((size_t)max_rows * (size_t)used),
      slots_(chosen_.size()),
      rows_(chosen_.size()),
      first_((size_t)experts + 1),
      weights_(chosen_.size()) {}

void ExpertLists::group(int rows) {
  const int experts = (int)first_.size() - 1, slots = rows * used_;
  for (int e = 0; e <= experts; e++) first_[(size_t)e] = 0;
  for (int s = 0; s < slots; s++) first_[(size_t)chosen_[(size_t)s] + 1]++;
  for (int e = 0; e < experts; e++) first_[(size_t)e + 1] += first_[(size_t)e];
  // Filling moves each expert's begin to its end; one place further down they are begins again.
  for (int s = 0; s < slots; s++) {
    const int place = first_[(size_t)chosen_[(size_t)s]]++;
    slots_[(size_t)place] = s;
    rows_[(size_t)place] = s / used_;
  }
  for (int e = experts; e > 0; e--) first_[(size_t)e] = first_[(size_t)e - 1];
  first_[0] = 0;
}

}  // namespace memra
