// Computes the memory that a process' measurements take in the server, and selects the user who
// loses a process if memory is short.
//
// Other processes must not be able to make the server's memory grow. So page content has a price:
// about the bytes that its snapshot, series and text lines take together during rendering. A
// process may take kMaxProcessBytes, a page kMaxPageBytes.
//
// If several users share a table or page, the user with the largest share loses a process
// (GivesWay). So a user with at most an even share never loses one.
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

// Enough for 2048 series, the default limit of a process, and 350 more, if each is a histogram
// without the user's labels (6.9 KiB).
inline constexpr uint64_t kMaxProcessBytes = 16 << 20;
// Limits all processes except the serving one. Enough for 4550 histograms without the user's
// labels: eight processes that have 16 communicators with 33 histograms each.
inline constexpr uint64_t kMaxPageBytes = 31 << 20;
// Limit of NCCL_PULSE_LABELS. Further labels are left out.
inline constexpr int kMaxStaticLabels = 16;

uint64_t PageBytes(const ProcessSnapshot& process);
// Returns the part of PageBytes that histograms of finalized communicators take.
uint64_t FinalizedHistogramBytes(const ProcessSnapshot& process);

// Each user's share of a resource.
using Shares = std::map<uid_t, uint64_t>;
// Returns the user with the largest share; empty if all shares are 0.
std::optional<uid_t> LargestShare(const Shares& shares);
// Returns the user that loses a process if one more, of `newcomer`, does not fit. It is the user
// with the largest share if that exceeds the newcomer's share after joining, else the newcomer.
uid_t GivesWay(const Shares& shares, uid_t newcomer);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_PAGE_SHARE_H_
