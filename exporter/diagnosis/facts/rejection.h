// Rejection is the reason why a process' measurements are not on the metrics page.
//
// Thread: any, constant data.
#ifndef EXPORTER_DIAGNOSIS_FACTS_REJECTION_H_
#define EXPORTER_DIAGNOSIS_FACTS_REJECTION_H_

#include <array>
#include <cstddef>
#include <cstdint>

namespace nccl_pulse {

// Why a hand-over was refused (label `reason` of nccl_pulse_processes_rejected_total).
enum class Rejection : int {
  kNotMemory,     // the descriptor is missing or no memfd
  kUnsealed,      // the memory could shrink or grow
  kBadSize,       // not a segment's size, or not the size in its header
  kBadLayout,     // damaged, or of another version
  kBadMessage,    // not a message of the hand-over protocol
  kForeignUser,   // the user is not served here
  kDuplicate,     // this server already reads this memory
  kNoRoom,        // too many processes, or no memory or descriptor left here
  kSilent,        // connected, but sent nothing in time
  kTooLarge,      // more measurements than a process may have on a shared page
  kPageFull,      // the page was full; largest process of the user with the most measurements
  kForeignClaim,  // claims another user's process, or communicators (then only these are left out)
};
inline constexpr int kRejections = 12;
inline constexpr std::array<const char*, kRejections> kRejectionNames = {
    "not_memory", "unsealed", "bad_size", "bad_layout", "bad_message", "foreign_user",
    "duplicate",  "no_room",  "silent",   "too_large",  "page_full",   "foreign_claim"};
constexpr const char* RejectionName(Rejection reason) {
  return kRejectionNames[static_cast<std::size_t>(reason)];
}

// Number of rejections, indexed by Rejection.
using RejectionCounts = std::array<uint64_t, kRejections>;

// True if a process with the plugin is missing on the page after this rejection.
constexpr bool LeavesUnread(Rejection reason) {
  return reason == Rejection::kBadLayout || reason == Rejection::kNoRoom ||
         reason == Rejection::kTooLarge || reason == Rejection::kPageFull;
}

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_REJECTION_H_
