// Which rows each expert computes in a step. A slot is (row, place in the row's choice): row * used + place.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace memra {

class ExpertLists {
 public:
  ExpertLists(int experts, int used, int max_rows);

  int used() const { return used_; }
  // The choice of a row: `used` experts, and their weights.
  int32_t* chosen(int row) { return chosen_.data() + (size_t)row * used_; }
  float* weights(int row) { return weights_.data() + (size_t)row * used_; }
  float weight(int slot) const { return weights_[(size_t)slot]; }

  // Sorts the slots of `rows` rows by expert, in order of row. Called by one thread, after every row has chosen.
  void group(int rows);

  // The slots of an expert, their number, and the rows to which they belong.
  const int32_t* slots(int expert) const { return slots_.data() + first_[(size_t)expert]; }
  const int32_t* rows(int expert) const { return rows_.data() + first_[(size_t)expert]; }
  int count(int expert) const { return first_[(size_t)expert + 1] - first_[(size_t)expert]; }

 private:
  int used_;
  std::vector<int32_t> chosen_, slots_, rows_, first_;
  std::vector<float> weights_;
};

}  // namespace memra
