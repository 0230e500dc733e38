// The tags that the user gives NCCL with a call (NCCL 2.31.2, profiler API v7), as small numbers
// for series keys. A process shows a few of them; all further ones are one.
//
//   0                     no tag, or tags are not shown
//   1 ... kMaxUserTags    SegmentHeader::user_tags[number - 1]
//   kOtherUserTag         one that came when all places were taken
//
// Thread: IdOf any, lock-free, no allocation; SetLimit before the first callback.
// Cost: a search through the tags that were met, of tagged calls only.
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

  // How many are told apart, at most kMaxUserTags; 0: none is shown.
  void SetLimit(int limit) { limit_ = limit; }

  UserTagId IdOf(uint64_t tag) {
    if (limit_ == 0 || tag == 0) return 0;
    for (int place = 0; place < limit_; ++place) {
      uint64_t found = tags_[place].load();
      // The tag is all there is to see. If another thread took the place, `found` is its tag.
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
