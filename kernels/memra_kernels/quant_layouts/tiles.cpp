#include "tiles.h"

#include <atomic>
#include <stdexcept>

#include "../runtime/pool.h"

namespace memra {
namespace {

// The four low bits of eight vectors go two to a byte; higher bits go to planes behind them.
void write_quants(int bits, const uint8_t vectors[8][64], uint8_t* out) {
  if (bits == 8) {
    memcpy(out, vectors, 512);
    return;
  }
  for (int e = 0; e < 64; e++) {
    if (bits == 2) {  // vector i sits at bit 2 * (i % 4) of plane i / 4
      for (int i = 0; i < 8; i++) out[i / 4 * 64 + e] |= (uint8_t)(vectors[i][e] << (2 * (i % 4)));
      continue;
    }
    for (int i = 0; i < 4; i++) out[i * 64 + e] = (uint8_t)((vectors[2 * i][e] & 15) | vectors[2 * i + 1][e] << 4);
    for (int i = 0; i < 8; i++) {
      const int high = vectors[i][e] >> 4;
      if (bits == 5) out[256 + e] |= (uint8_t)(high << i);
      if (bits == 6) out[256 + i / 4 * 64 + e] |= (uint8_t)(high << (2 * (i % 4)));
    }
  }
}

uint8_t read_quant(int bits, const uint8_t* in, int i, int e) {
  if (bits == 8) return in[i * 64 + e];
  if (bits == 2) return in[i / 4 * 64 + e] >> (2 * (i % 4)) & 3;
  const int low = i % 2 ? in[i / 2 * 64 + e] >> 4 : in[i / 2 * 64 + e] & 15;
  if (bits == 5) return (uint8_t)(low | (in[256 + e] >> i & 1) << 4);
  if (bits == 6) return (uint8_t)(low | (in[256 + i / 4 * 64 + e] >> (2 * (i % 4)) & 3) << 4);
  return (uint8_t)low;
}

// Calls visit(address, bytes, field of the codes) for every scale of row r: one list serves writing and reading.
template <class Visit>
void visit_scales(Layout layout, uint8_t* header, int r, Codes& c, Visit visit) {
  const LayoutTraits t = traits(layout);
  if (t.scale == Scale::Half16) {
    for (int j = 0; j < 2 * record_blocks(layout); j++) visit(header + j * 32 + r * 2, 2, &c.scale[j]);
    return;
  }
  if (!is_k(t.scale)) {
    for (int b = 0; b < record_blocks(layout); b++) {
      visit(header + b * 32 + r * 2, 2, &c.scale[b]);
      if (t.min == Min::Half32) visit(header + min_offset(layout) + b * 32 + r * 2, 2, &c.min[b]);
    }
    return;
  }
  visit(header + r * 2, 2, &c.scale[0]);
  if (t.min != Min::None) visit(header + 32 + r * 2, 2, &c.min[0]);
  const int step = is_halved(t.scale) ? 1 : 2;
  for (int j = 0; j < 16; j += step) {
    visit(header + scale_offset(layout) + j / step * 16 + r, 1, &c.scale_byte[j]);
    if (t.min != Min::None) visit(header + min_offset(layout) + j / step * 16 + r, 1, &c.min_byte[j]);
  }
}

void write_record(Layout layout, Codes codes[16], uint8_t* out) {
  for (int r = 0; r < 16; r++) {
    visit_scales(layout, out, r, codes[r], [](void* to, int n, const void* from) { memcpy(to, from, (size_t)n); });
  }
  for (int b = 0; b < record_blocks(layout); b++) {
    uint8_t vectors[8][64];
    for (int i = 0; i < 8; i++)
      for (int e = 0; e < 64; e++) vectors[i][e] = codes[e / 4].q[b * 32 + 4 * i + e % 4];
    write_quants(traits(layout).bits, vectors, out + header_bytes(layout) + b * block_bytes(layout));
  }
}

void read_record(Layout layout, uint8_t* in, int r, Codes& c) {
  memset(&c, 0, sizeof c);
  visit_scales(layout, in, r, c, [](const void* from, int n, void* to) { memcpy(to, from, (size_t)n); });
  for (int b = 0; b < record_blocks(layout); b++) {
    const uint8_t* q = in + header_bytes(layout) + b * block_bytes(layout);
    for (int k = 0; k < 32; k++) c.q[b * 32 + k] = read_quant(traits(layout).bits, q, k / 4, 4 * r + k % 4);
  }
}

bool write_quant_tile(const Weight& w, const StoredType& type, const uint8_t* stored, size_t row_bytes, int tile) {
  bool finite = true;
  Codes codes[16];
  for (int record = 0; record < w.records; record++) {
    for (int r = 0; r < 16; r++) {
      const int row = tile * 16 + r;
      if (row < w.rows) decode_record(type, stored + (size_t)row * row_bytes, w.cols, record, codes[r]);
      else memset(&codes[r], 0, sizeof codes[r]);
      finite = finite && scales_are_finite(w.layout, codes[r]);
    }
    write_record(w.layout, codes, w.data + (size_t)tile * w.tile_bytes + (size_t)record * record_bytes(w.layout));
  }
  return finite;
}

// Floats: element k of the sixteen rows side by side.
bool write_float_tile(const Weight& w, const uint8_t* stored, size_t row_bytes, int tile) {
  bool finite = true;
  const int bytes = traits(w.layout).bits / 8;
  for (int r = 0; r < 16 && tile * 16 + r < w.rows; r++) {
    const uint8_t* row = stored + (size_t)(tile * 16 + r) * row_bytes;
    for (int k = 0; k < w.cols; k++) {
      memcpy(w.data + (size_t)tile * w.tile_bytes + ((size_t)k * 16 + (size_t)r) * bytes, row + (size_t)k * bytes,
             bytes);
      const uint32_t top = bytes == 4 ? stored::u16(row + (size_t)k * 4 + 2) : stored::u16(row + (size_t)k * 2);
      finite = finite && (w.layout == Layout::F16 ? half_is_finite((uint16_t)top) : (top & 0x7f80) != 0x7f80);
    }
  }
  return finite;
}

void read_tile(const Weight& w, int tile, float* out) {
  uint8_t* data = w.data + (size_t)tile * w.tile_bytes;
  Codes c;
  for (int r = 0; r < 16 && tile * 16 + r < w.rows; r++) {
    float* row = out + (size_t)(tile * 16 + r) * w.cols;
    if (is_float(w.layout)) {
      const int bytes = traits(w.layout).bits / 8;
      for (int k = 0; k < w.cols; k++)
        row[k] = stored::float_value(w.layout, data + ((size_t)k * 16 + (size_t)r) * bytes);
      continue;
    }
    for (int k = 0; k < w.cols; k++) {
      const int elements = record_blocks(w.layout) * 32;
      if (k % elements == 0) read_record(w.layout, data + (size_t)(k / elements) * record_bytes(w.layout), r, c);
      row[k] = code_value(w.layout, c, k % elements);
    }
  }
}

const StoredType& fitting_type(int ggml_type, int rows, int cols) {
  const StoredType* type = find_stored_type(ggml_type);
  if (!type) throw std::invalid_argument("GGML type " + std::to_string(ggml_type) + " has no layout");
  if (rows < 1 || cols < 1 || cols % type->elements) throw std::invalid_argument("the shape does not fit the type");
  return *type;
}

}  // namespace

Weight tiled_weight(int ggml_type, int rows, int cols) {
  const Layout layout = fitting_type(ggml_type, rows, cols).layout;
  const int elements = is_float(layout) ? 1 : record_blocks(layout) * 32;
  Weight w{layout, rows, cols, (rows + 15) / 16, (cols + elements - 1) / elements, 0, nullptr};
  const size_t bytes =
      is_float(layout) ? (size_t)cols * 2 * traits(layout).bits : (size_t)w.records * record_bytes(layout);
  w.tile_bytes = (bytes + 63) / 64 * 64;
  return w;
}

void repack(Pool& pool, int ggml_type, const uint8_t* stored, size_t bytes, const Weight& w) {
  const StoredType& type = fitting_type(ggml_type, w.rows, w.cols);
  const size_t row_bytes = (size_t)(w.cols / type.elements) * (size_t)type.bytes;
  if (bytes != (size_t)w.rows * row_bytes) {
    throw std::invalid_argument("the data does not have the size that shape and type ask for");
  }
  std::atomic<int> bad{-1};
  pool.for_each(w.tiles, [&](int tile) {
    memset(w.data + (size_t)tile * w.tile_bytes, 0, w.tile_bytes);  // planes are or-ed in, and rows may be missing
    const bool finite = is_float(w.layout) ? write_float_tile(w, stored, row_bytes, tile)
                                           : write_quant_tile(w, type, stored, row_bytes, tile);
    if (!finite) bad.store(tile, std::memory_order_relaxed);
  });
  if (bad.load() >= 0) {
    throw std::runtime_error("a NaN or infinite scale in rows " + std::to_string(bad.load() * 16) + " to " +
                             std::to_string(bad.load() * 16 + 15));
  }
}

void unpack(Pool& pool, const Weight& weight, float* out) {
  pool.for_each(weight.tiles, [&](int tile) { read_tile(weight, tile, out); });
}

}  // namespace memra
