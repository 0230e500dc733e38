// Why a process' measurements are not on a page.
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
  kNotMemory,     // no memfd: a pipe, a file, nothing
  kUnsealed,      // it could shrink or grow
  kBadSize,       // not a segment's size, or not the one that its header says
  kBadLayout,     // damaged, or of another version
  kBadMessage,    // not the hand-over's protocol
  kForeignUser,   // of a user that this server does not serve
  kDuplicate,     // memory that this server reads already
  kNoRoom,        // too many processes, or no memory or descriptor left here
  kSilent,        // connected, and said nothing in time
  kTooLarge,      // more measurements than one process may have on a page of several
  kPageFull,      // the largest of the user who has most of a page that is full
  kForeignClaim,  // says that it is another user's process, or has that one's communicators
};
inline constexpr int kRejections = 12;
inline constexpr std::array<const char*, kRejections> kRejectionNames = {
    "not_memory", "unsealed", "bad_size", "bad_layout", "bad_message", "foreign_user",
    "duplicate",  "no_room",  "silent",   "too_large",  "page_full",   "foreign_claim"};
constexpr const char* RejectionName(Rejection reason) {
  return kRejectionNames[static_cast<std::size_t>(reason)];
}

// The index is a Rejection.
using RejectionCounts = std::array<uint64_t, kRejections>;

// True if processes that run the plugin may be missing for it.
inline bool IsAnyUnread(const RejectionCounts& counts) {
  for (const Rejection reason :
       {Rejection::kBadLayout, Rejection::kNoRoom, Rejection::kTooLarge, Rejection::kPageFull}) {
    if (counts[static_cast<std::size_t>(reason)] != 0) return true;
  }
  return false;
}

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_FACTS_REJECTION_H_
