// CallIndex joins the recorded calls of all ranks, for drawing the timeline: a mark for each call,
// flows (arrows) between the marks of a collective on its ranks, and slices for timed calls and
// waits. It finds the ranks that lack a collective, the ranks' waits for each other, and the
// earliest time at which the GPU can have begun a timed call.
//
// Thread: any, immutable; refers to its inputs. Cost: n log n in the calls.
#ifndef EXPORTER_TIMELINE_CALL_INDEX_H_
#define EXPORTER_TIMELINE_CALL_INDEX_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/timeline/recording.h"
#include "exporter/timeline/timeline.h"

namespace nccl_pulse {

struct RankCall {
  const SeenRank* rank;
  const SeenCall* call;
};

// A rank that has not made a collective call that other ranks have made.
struct NotCalled {
  const SeenRank* rank;
  RankCall first;  // the first rank that made the call
  int64_t end_ns;  // last poll of `rank`; 0: it was polled to the end
};

// A rank's wait: from its own launch of a collective to the launch of the last recorded rank.
struct RankWait {
  const SeenRank* rank;
  const SeenCall* call;
  int64_t begin_ns;
  int64_t end_ns;        // 0: ongoing
  bool is_unseen;        // end unknown: not over at end_ns, when one of the ranks was last polled
  const SeenRank* last;  // the rank that is waited for
};

class CallIndex {
 public:
  // `clocks`: of the endpoints, against the local clock. Both must outlive this object.
  CallIndex(const JobRecording& recording, const std::vector<std::optional<ClockOffset>>& clocks);

  const std::vector<NotCalled>& not_called() const { return not_called_; }
  // Waits by rank, in time order, without overlap.
  const std::vector<RankWait>& waits() const { return waits_; }
  // Returns the id of the flow that joins this call with the same collective on other ranks; 0:
  // none.
  uint64_t FlowOf(const SeenRank& rank, const SeenCall& call) const;
  // Returns the number of collectives that have a flow.
  std::size_t flows() const;
  // Returns the earliest time at which the GPU can have begun the call: the later of its launch and
  // the end of earlier timed calls on its stream. 0: it was not timed, or its launch is not known.
  int64_t EarliestBegin(const SeenCall& call) const;
  // Returns the time of the call's mark: KnownTime (recording.h). Marks of the same time (a group
  // has one launch) are a nanosecond apart, in order: the viewer would draw equal ones below each
  // other.
  int64_t MarkTime(const SeenCall& call) const;

 private:
  using Collectives = std::map<uint64_t, std::vector<RankCall>>;

  void FindNotCalled(const JobRecording& recording);
  void FindWaits(const JobRecording& recording);
  void FindMarks(const JobRecording& recording);
  void FindBegins(const JobRecording& recording);
  // Returns the maximum difference between the clocks of two ranks; nothing if not known.
  std::optional<int64_t> ApartNs(const SeenRank& a, const SeenRank& b) const;

  const std::vector<std::optional<ClockOffset>>& clocks_;
  std::map<std::string, Collectives> collectives_;  // by communicator
  std::vector<NotCalled> not_called_;
  std::vector<RankWait> waits_;
  // By communicator and collective number: index into not_called_.
  std::map<std::pair<std::string, uint64_t>, std::size_t> missing_;
  std::map<const SeenCall*, int64_t> begins_;
  std::map<const SeenCall*, int64_t> marks_;  // marks that are not at KnownTime
};

// Returns when a timed call that begins at `begin_ns` ends, saturated: a capture may claim any
// time.
int64_t EndOf(const SeenCall& call, int64_t begin_ns);

// Returns the flow id for a key that names what the flow joins. Never 0.
uint64_t FlowId(std::string_view what);

}  // namespace nccl_pulse

#endif  // EXPORTER_TIMELINE_CALL_INDEX_H_
