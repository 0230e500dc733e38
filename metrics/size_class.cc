#include "metrics/size_class.h"

#include <array>

namespace nccl_pulse {
namespace {

constexpr std::array<std::string_view, kSizeClasses> kNames = {
    "le_4KiB",  "le_16KiB", "le_64KiB",  "le_256KiB", "le_1MiB", "le_4MiB",
    "le_16MiB", "le_64MiB", "le_256MiB", "le_1GiB",   "gt_1GiB"};

}  // namespace

std::string_view SizeClassName(int size_class) {
  if (size_class == kOverflowSizeClass) return "overflow";
  if (size_class < 0 || size_class >= kSizeClasses) return "invalid";
  return kNames[size_class];
}

}  // namespace nccl_pulse
