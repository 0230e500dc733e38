// How much memory a process' measurements take in the process that serves them, and who gives way
// when that is too much.
//
// Other processes must not be able to make the server's memory grow. So everything that goes onto a
// page has a price: about the bytes that its snapshot, its series and its lines in the text format
// take together while a page is made. A process may take kMaxProcessBytes, a page kMaxPageBytes.
//
// Shares. Where several users share a table or a page, the user who has most of it gives way; which
// of its processes does is the table's rule. So a user with no more than an even share loses
// nothing, whatever the others do.
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

// What 2048 series take, the default limit of a process, when each is a histogram without labels of
// the user's (6.9 KiB), and 350 more.
inline constexpr uint64_t kMaxProcessBytes = 16 << 20;
// Of all others than the one that serves: 4550 histograms without labels of the user's, eight
// processes with 16 communicators of 33 each.
inline constexpr uint64_t kMaxPageBytes = 31 << 20;
// As many as NCCL_PULSE_LABELS takes. Further ones are left out.
inline constexpr int kMaxStaticLabels = 16;

uint64_t PageBytes(const ProcessSnapshot& process);
// Of that, the histograms of communicators that were finalized.
uint64_t FinalizedHistogramBytes(const ProcessSnapshot& process);

// How much of something each user has.
using Shares = std::map<uid_t, uint64_t>;
// The user with the most; none when all shares are empty.
std::optional<uid_t> LargestShare(const Shares& shares);
// Who gives way when one more, of `newcomer`, does not fit: the user with the most if that is more
// than the newcomer would then have, else the newcomer.
uid_t GivesWay(const Shares& shares, uid_t newcomer);

}  // namespace nccl_pulse

#endif  // EXPORTER_EXPOSITION_PAGE_SHARE_H_
