#include "exporter/diagnosis/rejection.h"

namespace nccl_pulse {

const char* RejectionName(Rejection reason) {
  switch (reason) {
    case Rejection::kNotMemory:
      return "not_memory";
    case Rejection::kUnsealed:
      return "unsealed";
    case Rejection::kBadSize:
      return "bad_size";
    case Rejection::kBadLayout:
      return "bad_layout";
    case Rejection::kBadMessage:
      return "bad_message";
    case Rejection::kForeignUser:
      return "foreign_user";
    case Rejection::kDuplicate:
      return "duplicate";
    case Rejection::kNoRoom:
      return "no_room";
    case Rejection::kSilent:
      return "silent";
    case Rejection::kTooLarge:
      return "too_large";
    case Rejection::kPageFull:
      return "page_full";
    case Rejection::kForeignClaim:
      return "foreign_claim";
  }
  return "unknown";
}

}  // namespace nccl_pulse
