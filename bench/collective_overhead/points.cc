#include "bench/collective_overhead/points.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace nccl_pulse::overhead {
namespace {

constexpr const char* kOperationNames[] = {"all_reduce", "all_gather", "reduce_scatter",
                                           "broadcast",  "all_to_all", "send_recv"};
constexpr const char* kModeNames[] = {"back-to-back", "sync", "graph", "graph-decode"};
constexpr const char* kLaunchNames[] = {"processes", "threads"};

template <typename Enum, std::size_t Size>
std::optional<Enum> Find(const char* const (&names)[Size], std::string_view name) {
  const auto at = std::find(std::begin(names), std::end(names), name);
  if (at == std::end(names)) return std::nullopt;
  return static_cast<Enum>(at - std::begin(names));
}

}  // namespace

const char* Name(Operation operation) { return kOperationNames[static_cast<int>(operation)]; }
const char* Name(Mode mode) { return kModeNames[static_cast<int>(mode)]; }
const char* Name(Launch launch) { return kLaunchNames[static_cast<int>(launch)]; }

std::optional<Operation> ParseOperation(std::string_view name) {
  return Find<Operation>(kOperationNames, name);
}
std::optional<Mode> ParseMode(std::string_view name) { return Find<Mode>(kModeNames, name); }
std::optional<Launch> ParseLaunch(std::string_view name) {
  return Find<Launch>(kLaunchNames, name);
}

std::optional<uint64_t> ParseSize(std::string_view text) {
  std::size_t digits = 0;
  while (digits < text.size() && isdigit(static_cast<unsigned char>(text[digits])) != 0) ++digits;
  uint64_t number = 0;
  if (!absl::SimpleAtoi(std::string(text.substr(0, digits)), &number)) return std::nullopt;
  const std::string_view unit = text.substr(digits);
  int shift = 0;
  if (unit == "K" || unit == "KiB") {
    shift = 10;
  } else if (unit == "M" || unit == "MiB") {
    shift = 20;
  } else if (unit == "G" || unit == "GiB") {
    shift = 30;
  } else if (!unit.empty() && unit != "B") {
    return std::nullopt;
  }
  if (number > std::numeric_limits<uint64_t>::max() >> shift) return std::nullopt;
  return number << shift;
}

std::optional<std::vector<uint64_t>> ParseSizes(std::string_view text) {
  std::vector<uint64_t> sizes;
  const std::vector<std::string> range = absl::StrSplit(std::string(text), ':');
  if (range.size() == 3) {
    const std::optional<uint64_t> first = ParseSize(range[0]);
    const std::optional<uint64_t> last = ParseSize(range[1]);
    uint64_t factor = 0;
    if (!first || !last || *first == 0 || *first > *last || !absl::SimpleAtoi(range[2], &factor) ||
        factor < 2) {
      return std::nullopt;
    }
    for (uint64_t size = *first; size < *last; size *= factor) {
      sizes.push_back(size);
      if (size > *last / factor) break;
    }
    if (sizes.empty() || sizes.back() != *last) sizes.push_back(*last);
    return sizes;
  }
  for (const std::string& part : std::vector<std::string>(absl::StrSplit(std::string(text), ','))) {
    const std::optional<uint64_t> size = ParseSize(part);
    if (!size) return std::nullopt;
    sizes.push_back(*size);
  }
  return sizes;
}

std::string SizeName(uint64_t bytes) {
  constexpr const char* kUnits[] = {" B", " KiB", " MiB", " GiB"};
  std::size_t unit = 0;
  while (unit + 1 < std::size(kUnits) && bytes != 0 && bytes % 1024 == 0) {
    bytes /= 1024;
    ++unit;
  }
  return absl::StrCat(bytes, kUnits[unit]);
}

std::string PointName(const Point& point) {
  return absl::StrCat(Name(point.operation), " ", SizeName(point.bytes), " ", Name(point.mode),
                      point.compute ? "+compute" : "");
}

}  // namespace nccl_pulse::overhead
