// Estimates the memory that a process' measurements take on a metrics page, and selects the user
// whose process is left out if memory is short.
//
// Processes that the server reads must not be able to make its memory grow. So each has a price in
// bytes, for its snapshot, series and text lines together while a page is rendered. A process may
// take kMaxProcessBytes, and all on a page kMaxPageBytes.
//
// If the processes of several users don't fit, the user with the largest share loses one
// (LargestShare). So a user with at most an even share never loses one.
//
// Thread: any, no state.
#ifndef EXPORTER_EXPOSITION_PAGE_SHARE_H_
#define EXPORTER_EXPOSITION_PAGE_SHARE_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

#include "metrics/snapshot.h"

namespace nccl_pulse {

// Enough for 2048 histograms, the default limit of a process, and 350 more, if none has the user's
// labels (6.9 KiB each).
inline constexpr uint64_t kMaxProcessBytes = 16 << 20;
// Limits all processes except the serving one. Enough for 4550 histograms without the user's
// labels: eight processes that have 16 communicators with 33 histograms each.
inline constexpr uint64_t kMaxPageBytes = 31 << 20;
// Limit of NCCL_PULSE_LABELS. Further labels are left out.
inline constexpr int kMaxStaticLabels = 16;

// Returns the process' price.
uint64_t PageBytes(const ProcessSnapshot& process);
// Returns the part of PageBytes that histograms of finalized communicators take.
uint64_t FinalizedHistogramBytes(const ProcessSnapshot& process);

// Each user's share of a resource: bytes or processes.
using Shares = std::map<uid_t, uint64_t>;
// Returns the user with the largest share; empty if all shares are 0.
std::optional<uid_t> LargestShare(const Shares& shares);
// Returns the user who loses a process if one more of the user `newcomer` does not fit; shares
// count processes. It is the user with most processes if the newcomer would still have fewer, else
// the newcomer.
uid_t GivesWay(const Shares& shares, uid_t newcomer);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_PAGE_SHARE_H_
