// Recognizes exchanges: groups of Send and Recv between all ranks, as in an all-to-all. Also
// measures the time that ranks spend in calls.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_FACTS_EXCHANGE_H_
#define EXPORTER_DIAGNOSIS_FACTS_EXCHANGE_H_

#include <optional>

#include "exporter/diagnosis/facts/communicator_facts.h"
#include "exporter/diagnosis/facts/rank_view.h"

namespace nccl_pulse {

// True if each launch of each rank, except collectives, is one whole exchange: a Send to and a Recv
// from every other rank, with or without itself. The n-th launch is then the same exchange on all
// ranks, and no rank leaves it before the last one has arrived. Stays false once a rank has split
// an exchange or made only a part of it, because its counts no longer match.
bool AreLaunchesExchanges(const CommunicatorView& view);

// Returns the share of its time that a rank spends in calls for which `is_counted` is true, on one
// communicator. Returns nothing if too few calls were timed.
std::optional<double> ShareInCalls(const RankView& rank,
                                   bool (*is_counted)(const TimedCallSnapshot& call));

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_EXCHANGE_H_
