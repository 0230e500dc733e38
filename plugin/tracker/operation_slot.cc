#include "plugin/tracker/operation_slot.h"

#include "plugin/tracker/operation_slot_impl.h"

namespace nccl_pulse {

template class BasicOperationSlot<StdAtomics>;

}  // namespace nccl_pulse
