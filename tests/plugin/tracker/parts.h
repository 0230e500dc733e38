// Kit of the tests of the operation ring.
#ifndef TESTS_PLUGIN_TRACKER_PARTS_H_
#define TESTS_PLUGIN_TRACKER_PARTS_H_

#include <cstdint>

#include "plugin/tracker/operation_ring.h"

namespace nccl_pulse {

inline constexpr uint64_t kSecond = 1000000000;

// Claims a place for an operation, settles nothing, and returns the ticket.
inline uint64_t ClaimPlace(OperationRing& ring, uint64_t first_ticket, bool by_kernel,
                           const NewOperation& operation) {
  return ring.Claim(ring.TakeNumber(), first_ticket, by_kernel, operation,
                    [&](uint32_t place, uint64_t* claimed) {
                      return ring.ClaimUsed(place, by_kernel, claimed,
                                            [](const OperationState&) {});
                    });
}

}  // namespace nccl_pulse

#endif  // TESTS_PLUGIN_TRACKER_PARTS_H_
