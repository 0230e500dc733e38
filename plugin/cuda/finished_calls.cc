#include "plugin/cuda/finished_calls.h"

namespace nccl_pulse {

void FinishedCalls::Look(uint64_t sum, uint64_t first, const CalledWork& called,
                         const LaunchedWork& launched, bool is_over) {
  const uint32_t calls = called.calls - base_.called.calls;
  const uint32_t broadcasts = called.broadcasts - base_.called.broadcasts;
  const uint64_t alone = launched.alone - base_.launched.alone;
  const uint64_t growth = sum - base_.sum - (launched.work - base_.launched.work);
  const bool is_of_one_size = called.broadcasts - called.run >= broadcasts;
  const bool is_told = is_of_one_size && calls == broadcasts + alone;
  const bool is_counted = is_told && first - base_.first == calls;
  if (is_counted && broadcasts != 0 && (is_over || broadcasts >= kProvesWidth)) {
    width_ = (growth + broadcasts - 1) / broadcasts;
    if (is_over && growth != broadcasts * width_) width_ = 0;  // they differ
    bytes_ = called.bytes;
  }
  const bool is_width_known = broadcasts == 0 || (width_ != 0 && bytes_ == called.bytes);
  const bool is_finished = is_counted && is_width_known && growth == broadcasts * width_;
  if (!is_finished && !is_over) return;
  base_ = {sum, first, called, launched};
  calls_ = called.calls;
  is_known_ = true;
}

}  // namespace nccl_pulse
