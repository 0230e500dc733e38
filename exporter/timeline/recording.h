// JobRecording joins polls of a job's calls: pages of /api/v1/communicators/ID/calls, each with the
// last calls of one communicator's ranks. Polls overlap; a call is identified by its number on its
// rank of a communicator. Numbers that no poll has are a gap.
//
// Fields of a page that are missing or have another type are read as unknown: pages come from other
// hosts and from files.
//
// Thread: one. Memory: about 300 bytes per call and 1 KiB per rank, at most kMostCalls and
// kMostRanks. When there are kMostCalls, a new call replaces the oldest one of its rank or, if its
// rank has fewer than the average, of the rank with the most calls.
#ifndef EXPORTER_TIMELINE_RECORDING_H_
#define EXPORTER_TIMELINE_RECORDING_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "nlohmann/json_fwd.hpp"

namespace nccl_pulse {

inline constexpr std::size_t kMostCalls = 500000;
inline constexpr std::size_t kMostRanks = 500000;        // further ones are left out
inline constexpr int64_t kMostUnseenNs = 1'000'000'000;  // see IsSeenAtEnd

// A process of a watched job, as its endpoint describes it.
struct JobProcess {
  std::size_t endpoint = 0;  // index among the job's endpoints
  std::string hostname;
  int64_t pid = 0;             // as the process itself sees it
  uint32_t pid_namespace = 0;  // inode of the namespace of `pid`; 0: the host's own, or not known
};

// A call, with the fields of docs/http-api.md. Times are the endpoint's, in ns since 1970.
struct SeenCall {
  uint64_t number = 0;      // among the rank's calls on the communicator, from 1
  uint64_t collective = 0;  // among its collectives, from 1; 0: Send or Recv
  std::string op, datatype, stream, state;
  uint64_t bytes = 0;
  uint64_t group = 0;             // number of the first call of its group
  int64_t launched_ns = 0;        // 0: not known
  std::optional<bool> begun;      // by the GPU
  std::optional<double> seconds;  // duration on the GPU
  int64_t seen_ns = 0;            // time of the first poll that has the call
  int64_t updated_ns = 0;         // time of the last poll that has the call
  uint64_t updated_look = 0;      // SeenRank::looks at that poll

  // True if the call is not known to have ended at the last poll.
  bool is_open() const {
    return state == "launched" || state == "in_flight" || state == "not_launched";
  }
};

// Successive calls that were made but are in no poll.
struct CallGap {
  uint64_t first = 0, last = 0;         // numbers of the first and the last one
  int64_t after_ns = 0, before_ns = 0;  // times of the calls before and behind the gap
};

// A rank of a communicator, with its calls.
struct SeenRank {
  std::size_t endpoint = 0;  // index of the endpoint that reported it
  std::string comm, name;    // the communicator's ID (16 hexadecimal digits) and name
  int64_t nranks = 0, rank = 0, pid = 0, pid_namespace = 0;
  std::string hostname, global_rank, gpu;
  std::string missing;     // why the endpoint has no calls of the rank; "": it knows its calls
  bool has_calls = false;  // a poll had a list of its calls, which may be empty
  std::map<uint64_t, SeenCall> calls;  // by number
  uint64_t dropped_through = 0;        // calls up to this number were dropped for lack of room
  int64_t looked_ns = 0;               // time of the newest poll, by the endpoint's clock
  int64_t arrived_ns = 0;              // time of the newest poll, by the local clock
  uint64_t looks = 0;                  // number of polls
  std::size_t looked_by = 0;           // endpoint of the newest poll
  // At each poll: its time, and the number of calls not known to have ended.
  std::vector<std::pair<int64_t, std::size_t>> open_calls;

  std::vector<CallGap> Gaps() const;
  // Returns the number of the newest collective that the rank has called, 0 if there is none, or
  // nothing if it is not known.
  std::optional<uint64_t> LastCollective() const;
  // True if the call was in the newest poll, and not known to have ended then.
  bool IsOpen(const SeenCall& call) const { return call.is_open() && call.updated_look == looks; }
};

class JobRecording {
 public:
  explicit JobRecording(std::size_t most_calls = kMostCalls) : most_calls_(most_calls) {}

  using Key = std::tuple<std::string, std::string, int64_t, int64_t>;  // comm, host, pid, rank

  // Adds a page from this endpoint, which arrived at `arrived_ns` of the local clock. Call in order
  // of arrival. Of two pages from one endpoint the later arrival is newer, even if its time is
  // earlier, because the endpoint's clock may have been set; of pages from different endpoints the
  // one with the later time is newer. Returns the page's time; 0 if it is no such page.
  int64_t AddCalls(std::size_t endpoint, const nlohmann::json& page, int64_t arrived_ns);
  // Sets the time until which ranks were polled, by the local clock.
  void SetEnd(int64_t arrived_ns) { last_ns_ = arrived_ns; }
  // True if the rank's newest poll is at most kMostUnseenNs before the end, so that a call which it
  // lacks was not made. The end is the time given to SetEnd, or else the newest poll of the rank's
  // communicator.
  bool IsSeenAtEnd(const SeenRank& rank) const;

  const std::map<Key, SeenRank>& ranks() const { return ranks_; }
  std::size_t calls() const { return calls_; }
  // Returns the number of calls dropped for lack of room.
  std::size_t dropped() const { return dropped_; }
  // Returns the time of the newest poll; 0: none.
  int64_t end_ns() const { return end_ns_; }

 private:
  void AddRank(SeenRank* rank, const nlohmann::json& page, int64_t time_ns, int64_t arrived_ns);

  // Makes room for one more call. Returns false if the call is older than all calls that are kept
  // of its rank.
  bool MakeRoom(SeenRank* rank, uint64_t number);

  std::size_t most_calls_;
  std::map<Key, SeenRank> ranks_;
  std::size_t calls_ = 0, dropped_ = 0;
  int64_t end_ns_ = 0;
  int64_t last_ns_ = 0;                        // 0: not set
  std::map<std::string, int64_t> arrived_ns_;  // newest poll, by communicator
};

// Returns when a call was made: at its launch, or else at the poll that first saw it.
inline int64_t KnownTime(const SeenCall& call) {
  return call.launched_ns != 0 ? call.launched_ns : call.seen_ns;
}

}  // namespace nccl_pulse

#endif  // EXPORTER_TIMELINE_RECORDING_H_
