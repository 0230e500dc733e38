// UserTags numbers the tags that the user passes NCCL with a call (NCCL 2.31.2, profiler API v7),
// for series keys. A process shows a few tags; all others share one number.
//
//   0                     no tag, or tags are not shown
//   1 ... kMaxUserTags    SegmentHeader::user_tags[number - 1]
//   kOtherUserTag         any other tag, once all places are taken
//
// Thread: IdOf any, lock-free, no allocation; SetLimit before the first callback.
// Cost: a linear search through the known tags, for tagged calls only.
#ifndef METRICS_USER_TAGS_H_
#define METRICS_USER_TAGS_H_

#include <cstdint>

#include "metrics/segment_layout.h"

namespace nccl_pulse {

using UserTagId = uint8_t;
inline constexpr UserTagId kOtherUserTag = kMaxUserTags + 1;
static_assert(kOtherUserTag < 0x80, "OperationMeta keeps seven bits of it");

class UserTags {
 public:
  explicit UserTags(SegmentHeader& header) : tags_(header.user_tags) {}

  // Sets how many tags are distinguished, at most kMaxUserTags; 0: tags are not shown.
  void SetLimit(int limit) { limit_ = limit; }

  // Returns the number of the user's `tag`; 0 if `tag` is 0.
  UserTagId IdOf(uint64_t tag) {
    if (limit_ == 0 || tag == 0) return 0;
    for (int place = 0; place < limit_; ++place) {
      uint64_t found = tags_[place].load();
      // Relaxed: no other data depends on a tag. If another thread took the place, `found` is the
      // tag that it stored.
      if (found == 0 && tags_[place].replace(found, tag)) found = tag;
      if (found == tag) return static_cast<UserTagId>(place + 1);
    }
    return kOtherUserTag;
  }

 private:
  Relaxed<uint64_t>* const tags_;
  int limit_ = 0;
};

}  // namespace nccl_pulse

#endif  // METRICS_USER_TAGS_H_
