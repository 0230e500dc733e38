#include "exporter/base/gzip.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <memory>

namespace nccl_pulse {
namespace {

constexpr int kGzipWindow = MAX_WBITS + 16;  // deflateInit2: 16 more selects gzip's framing
constexpr int kMemoryLevel = 8;              // zlib's default
// Largest input of one call: zlib counts in 32 bits.
constexpr std::size_t kMostInput = std::numeric_limits<uInt>::max() / 2;

}  // namespace

std::optional<std::string> Gzip(std::string_view text) {
  if (text.size() > kMostInput) return std::nullopt;
  z_stream stream = {};
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzipWindow, kMemoryLevel,
                   Z_DEFAULT_STRATEGY) != Z_OK) {
    return std::nullopt;
  }
  // Also frees the stream if allocating the string below throws.
  const std::unique_ptr<z_stream, decltype(&deflateEnd)> end(&stream, &deflateEnd);

  // Pages shrink to a tenth or less. The buffer is doubled until the page fits.
  std::string packed(text.size() / 8 + 1024, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));  // only read from
  stream.avail_in = static_cast<uInt>(text.size());
  int result = Z_OK;
  while (true) {
    stream.next_out = reinterpret_cast<Bytef*>(packed.data()) + stream.total_out;
    stream.avail_out = static_cast<uInt>(packed.size() - stream.total_out);
    result = deflate(&stream, Z_FINISH);
    if (result != Z_OK && result != Z_BUF_ERROR) break;
    packed.resize(packed.size() * 2);
  }
  if (result != Z_STREAM_END) return std::nullopt;
  packed.resize(stream.total_out);
  packed.shrink_to_fit();
  return packed;
}

std::optional<std::string> GunzipAtMost(std::string_view packed, std::size_t most,
                                        const WorkBudget::Share* share) {
  if (packed.size() > kMostInput) return std::nullopt;
  z_stream stream = {};
  if (inflateInit2(&stream, kGzipWindow) != Z_OK) return std::nullopt;
  const std::unique_ptr<z_stream, decltype(&inflateEnd)> end(&stream, &inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));  // only read from
  stream.avail_in = static_cast<uInt>(packed.size());
  std::string text;
  std::array<char, 65536> part;
  int result = Z_OK;
  while (result == Z_OK) {
    if (share != nullptr && share->IsOver()) return std::nullopt;
    stream.next_out = reinterpret_cast<Bytef*>(part.data());
    stream.avail_out = static_cast<uInt>(part.size());
    result = inflate(&stream, Z_NO_FLUSH);
    const std::size_t size = part.size() - stream.avail_out;
    if (size > most - text.size()) return std::nullopt;
    text.append(part.data(), size);
  }
  // Truncated input gives Z_BUF_ERROR. Bytes after the end of the stream are refused.
  if (result != Z_STREAM_END || stream.avail_in != 0) return std::nullopt;
  return text;
}

}  // namespace nccl_pulse
