// The calls of all ranks, joined: which ranks have made which collective, who has not made one that
// others have, and when the GPU can have begun a timed call.
//
// Thread: any, no state beyond what it is made of. Cost: n log n in the calls.
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

// A collective that a rank has not called, and others have.
struct NotCalled {
  const SeenRank* rank;
  RankCall first;  // who called it first
  int64_t end_ns;  // it was looked at no longer; 0: it was, to the end
};

// A rank has called, and the last of the ranks that are seen has not, or did later.
struct RankWait {
  const SeenRank* rank;
  const SeenCall* call;
  int64_t begin_ns;
  int64_t end_ns;        // 0: it goes on
  bool is_unseen;        // it had not ended by then, and who it is about was not looked at any more
  const SeenRank* last;  // whom it waits for
};

class CallIndex {
 public:
  // Both must outlive this object.
  CallIndex(const JobRecording& recording, const std::vector<std::optional<ClockOffset>>& clocks);

  const std::vector<NotCalled>& not_called() const { return not_called_; }
  // Of each rank in the order of time, none over another.
  const std::vector<RankWait>& waits() const { return waits_; }
  // The number of the flow that joins this collective over the ranks; 0: it stands alone.
  uint64_t FlowOf(const SeenRank& rank, const SeenCall& call) const;
  // Collectives that are joined.
  std::size_t flows() const;
  // When the GPU can have begun it at the earliest: its launch, and what came before on its stream.
  // 0: it was not timed, or its launch is not known.
  int64_t EarliestBegin(const SeenCall& call) const;
  // Says where its mark stands: at KnownTime, and those of one moment (a group has one launch) a
  // nanosecond apart, in their order. Marks of the same time would be drawn one below the other.
  int64_t MarkTime(const SeenCall& call) const;

 private:
  using Collectives = std::map<uint64_t, std::vector<RankCall>>;

  void FindNotCalled(const JobRecording& recording);
  void FindWaits(const JobRecording& recording);
  void FindMarks(const JobRecording& recording);
  void FindBegins(const JobRecording& recording);
  // How far the clocks of two ranks may be apart; nothing: that is not known.
  std::optional<int64_t> ApartNs(const SeenRank& a, const SeenRank& b) const;

  const std::vector<std::optional<ClockOffset>>& clocks_;
  std::map<std::string, Collectives> collectives_;  // by communicator
  std::vector<NotCalled> not_called_;
  std::vector<RankWait> waits_;
  // One who has not called it, of each such collective: its place in not_called_.
  std::map<std::pair<std::string, uint64_t>, std::size_t> missing_;
  std::map<const SeenCall*, int64_t> begins_;
  std::map<const SeenCall*, int64_t> marks_;  // those that do not stand at KnownTime
};

// Says when a timed call that begins then is over, no later than an int64_t can say: a capture may
// claim any time.
int64_t EndOf(const SeenCall& call, int64_t begin_ns);

// The id of a flow that joins what belongs to this. Not 0.
uint64_t FlowId(std::string_view what);

}  // namespace nccl_pulse

#endif  // EXPORTER_TIMELINE_CALL_INDEX_H_
