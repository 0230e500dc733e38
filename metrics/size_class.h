// Size classes of the `size` label: powers of four from 4 KiB to 1 GiB, and one for larger
// messages, 11 values in all. Small messages (latency-bound) and large ones (bandwidth-bound) never
// share a histogram.
//
// Thread: any. Cost: one count-leading-zeros.
#ifndef METRICS_SIZE_CLASS_H_
#define METRICS_SIZE_CLASS_H_

#include <cstdint>
#include <string_view>

namespace nccl_pulse {

inline constexpr int kSizeClasses = 11;
// Size class of overflow series (SeriesKey::Overflow).
inline constexpr int kOverflowSizeClass = 15;

// Returns 0 ("le_4KiB") ... 9 ("le_1GiB"), 10 ("gt_1GiB").
inline int SizeClassOf(uint64_t bytes) {
  constexpr int kFirstClassLog2 = 12;  // 4 KiB
  if (bytes <= (uint64_t{1} << kFirstClassLog2)) return 0;
  // ceil(log2(bytes)), then every second power of two starts a class.
  const int ceil_log2 = 64 - __builtin_clzll(bytes - 1);
  const int size_class = (ceil_log2 - kFirstClassLog2 + 1) / 2;
  return size_class < kSizeClasses ? size_class : kSizeClasses - 1;
}

// "le_4KiB" ... "gt_1GiB", "overflow" for kOverflowSizeClass, "invalid" for anything else.
std::string_view SizeClassName(int size_class);

}  // namespace nccl_pulse

#endif  // METRICS_SIZE_CLASS_H_
