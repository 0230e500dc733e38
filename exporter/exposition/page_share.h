// States how much memory a process' measurements take in the server, and which user's processes are
// evicted if the memory is not enough.
//
// Other processes must not be able to make the server's memory grow. So everything on a page has a
// price: about the bytes that its snapshot, its series and its lines in the text format take
// together while the page is rendered. A process may take kMaxProcessBytes, a page kMaxPageBytes.
//
// If several users share a table or a page, the user with the largest share loses a process; the
// table's rule says which. So a user with at most an even share loses nothing, whatever others do.
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

// It is enough for 2048 series, the default limit of a process, and 350 more, if each is a
// histogram without the user's labels (6.9 KiB).
inline constexpr uint64_t kMaxProcessBytes = 16 << 20;
// It limits all processes but the one that serves. It is enough for 4550 histograms without the
// user's labels: eight processes that have 16 communicators with 33 histograms each.
inline constexpr uint64_t kMaxPageBytes = 31 << 20;
// NCCL_PULSE_LABELS takes as many. Further ones are left out.
inline constexpr int kMaxStaticLabels = 16;

uint64_t PageBytes(const ProcessSnapshot& process);
// The part of it that the histograms of finalized communicators take.
uint64_t FinalizedHistogramBytes(const ProcessSnapshot& process);

// How much of something each user has.
using Shares = std::map<uid_t, uint64_t>;
// Returns the user with the largest share; none if all shares are empty.
std::optional<uid_t> LargestShare(const Shares& shares);
// Returns the user that loses a process if one more, of `newcomer`, does not fit. It is the user
// with the largest share if that is more than the newcomer would have, else the newcomer.
uid_t GivesWay(const Shares& shares, uid_t newcomer);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_PAGE_SHARE_H_
