// Which calls may be what ranks wait in. Hosts run ahead of their GPUs, so what a rank has called and
// its GPU has not come to holds up nobody yet, however wrong it is.
//
// Known only of ranks with an event in front of their oldest launch in flight: elsewhere the oldest
// launch that is not known to have completed may have done so (docs/stream-timing.md).
//
// Thread: any, no state. Cost: of the order of the calls that are compared.
#ifndef EXPORTER_DIAGNOSIS_REACHED_CALLS_H_
#define EXPORTER_DIAGNOSIS_REACHED_CALLS_H_

#include <cstdint>
#include <optional>

#include "exporter/diagnosis/call_counts.h"
#include "exporter/diagnosis/rank_view.h"

namespace nccl_pulse {

// Number of the last collective that all of these ranks have come to, with the rest of its group.
// Null: not known.
std::optional<uint32_t> LastReached(const Ranks& ranks);

// Its calls without those behind number `last`. Null: not known which these are.
std::optional<Calls> CallsUntil(uint32_t last, const RankView& rank);

// Whether the order of all calls that they may wait in is known.
bool IsOrderKnown(const Ranks& ranks);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_REACHED_CALLS_H_
