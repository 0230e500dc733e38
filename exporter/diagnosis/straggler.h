// Stragglers: the rank for which the others of a communicator wait, call after call.
//
// A duration on the stream contains the waiting for the other ranks, and all ranks time the same
// calls (plugin/tracker/sampler.h). So of one call, matched over the ranks by (operation, size
// class, call number), the rank with the shortest duration came last, and the others waited for it
// as much longer as theirs are. Only operations that no rank can leave before the last one has come
// are compared: AllReduce, AllGather, ReduceScatter, AlltoAll. Launches of several calls have the
// number of the launch: they are compared where each is an exchange with all other ranks, by the
// counts of all of them (exchange.h).
//
//   loss of a call = mean of the others' durations - the shortest duration
//
// The loss goes to the rank that came last, and in equal parts to those that came together with it.
//
// A launch in a CUDA graph is matched by the graph and the replay's number instead: of each graph
// the same launch is compared, the first that has stamps around it. Each rank numbers its own graphs,
// so only where all ranks have captured and follow as many.
//
// Scaled to all calls: one in 2^n is timed, and of those a rank keeps the last 32. The sum of an
// interval never exceeds the interval: one long wait does not stand for 2^n of its kind. A launch in
// a graph stands for itself in all replays, not for the other launches.
//
// A rank is called a straggler when it costs its peers more than kMinLoss of the time, and of the
// matched calls of the last half minute or so into which somebody came late it came last into most,
// and into many more than chance would have it. Late is what is waited for more than kMinLateNs and
// more than a part of the mean: of a step's calls ranks wait for a slow one in the first, and come
// to the others in any order. Not among ranks that are stages of a pipeline (rank_view.h).
//
// Thread: the server's.
#ifndef EXPORTER_DIAGNOSIS_STRAGGLER_H_
#define EXPORTER_DIAGNOSIS_STRAGGLER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "exporter/diagnosis/diagnosis_result.h"
#include "exporter/diagnosis/rank_view.h"

namespace nccl_pulse {

class StragglerState {
 public:
  // What is older counts e times less. Short enough that at a scrape of 5 s a rank that begins to
  // be late is named within 30 s, however long it was not, and of two ranks, too.
  static constexpr double kWindowSeconds = 20;
  static constexpr double kMinMatched = 16;
  static constexpr double kMinLate = 8;          // of these
  static constexpr double kMinLoss = 0.02;       // seconds per second
  static constexpr uint64_t kMinLateNs = 20000;  // well above the events' own differences
  static constexpr double kMinLateShare = 0.65;
  // Of few late calls, and of exchanges, most of which belong to the same few steps: there a healthy
  // rank has had the longest sequences in up to 0.78 by chance.
  static constexpr double kMinShareOfFew = 0.8;
  static constexpr double kManyLate = 16;
  // One look knows the last 32 calls of a communicator. They are of a dozen steps, and the calls of
  // one step are late alike: a healthy one of three or four ranks has come last into up to 0.74.
  static constexpr double kMinShareOfOneLook = 0.75;
  static constexpr double kMostOfOneLook = 32;
  // Of the mean loss of a call: what is less is how ranks come when nobody is waited for.
  static constexpr double kMinPartOfMean = 0.2;
  // In the mean no call counts for more means than this: after one wait of minutes (a checkpoint, a
  // hang that went on) nothing else would be late for as long.
  static constexpr double kMostMeans = 100;
  static constexpr std::size_t kMostKinds = 1024;  // a real job has some dozens

  // Counts what is new. The view is of this object's communicator.
  void Update(const CommunicatorView& view, int64_t now_realtime_ns);
  // One rank, or else all ranks of one of several hosts (straggler_host.cc).
  std::optional<Straggler> Find(const CommunicatorView& view) const;
  std::vector<RankLoss> Losses(const CommunicatorView& view) const;

 private:
  // Operation, size class, how timed, and of a launch in a CUDA graph which graph.
  using Kind = std::tuple<std::string, int, LatencyKind, uint32_t>;
  struct OfKind {
    uint32_t last_call = 0;
    bool has_last = false;
    uint64_t timed = 0;  // by the rank that times fewest, at the last update with a match
  };
  struct OfRank {
    double total_seconds = 0;   // ever
    double window_seconds = 0;  // as the window counts, like what follows
    double late_calls = 0;      // into which it came last by more than kMinLateNs
    double late_seconds = 0;    // not scaled, of those
    int64_t init_realtime_ns = 0;
  };

  std::optional<Straggler> FindHost(const std::vector<const RankView*>& ranks) const;

  std::map<Kind, OfKind> kinds_;
  std::map<int32_t, OfRank> ranks_;
  int64_t updated_realtime_ns_ = 0;
  double window_observed_ = 0;  // seconds
  double window_matched_ = 0;
  double window_loss_ = 0;  // seconds, not scaled, of these; none more than kMostMeans
  double mean_loss_ = 0;    // of the last window with enough calls, seconds
  double window_late_ = 0;  // of these, calls into which somebody came late
};

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_STRAGGLER_H_
