// ReadRasAnswer parses the JSON report of NCCL's RAS into plain values (src/ras/client_support.cc,
// NCCL 2.28.7 to 2.32.3; docs/without-the-plugin.md).
//
// A count is the number of launches by the host (comm->seqNumber, incremented in
// ncclLaunchPrepare). It does not include Send and Recv, replays of CUDA graphs, or copy-engine
// collectives.
//
// Thread: any, no state. Memory: kMostJsonBytes of values while parsing. The report is untrusted:
// texts are made plain, numbers are checked, and lists are limited.
#ifndef EXPORTER_OUTSIDE_RAS_ANSWER_H_
#define EXPORTER_OUTSIDE_RAS_ANSWER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace nccl_pulse::outside {

inline constexpr std::size_t kMostAnswerBytes = std::size_t{32} << 20;
inline constexpr std::size_t kMostAnswerRanks = std::size_t{1} << 16;  // of all communicators

inline constexpr std::array<const char*, 5> kCountedOps = {"Broadcast", "Reduce", "AllGather",
                                                           "ReduceScatter", "AllReduce"};
using Counts = std::array<uint64_t, kCountedOps.size()>;

uint64_t Total(const Counts& counts);  // UINT64_MAX if the sum is larger

struct RasRank {
  int32_t rank = 0;
  std::string host;   // IP address on NCCL's bootstrap network
  int32_t pid = 0;    // in its own PID namespace
  int nvml_dev = -1;  // NVML's index of its GPU
  Counts counts{};
  bool is_missing = false;  // its process did not answer RAS
  bool is_dead = false;     // missing, and RAS has given it up
  bool is_creating = false;
  bool has_left = false;   // finalized, destroyed or aborted
  bool has_counts = true;  // false: missing, or its process no longer has this communicator
  int async_error = 0;     // ncclResult_t
};

struct RasCommunicator {
  uint64_t id = 0;  // commId of the profiler API; changed by JobsOf if it isn't unique
  int32_t size = 0;
  std::vector<RasRank> ranks;  // in order, without duplicates
  bool is_creating = false;    // some rank is creating it
  Counts most{};               // largest count of any rank, per operation; set by JobsOf
};

// Communicators by RAS' two hashes; the first one is the ID.
using Communicators = std::map<std::pair<uint64_t, uint64_t>, RasCommunicator>;

struct RasAnswer {
  std::string nccl_version;
  Communicators communicators;  // with ranks and an ID
  bool is_any = false;          // false: nothing was read
  // False while a communicator is being created: RAS may then report present ranks as missing
  // (rasCollCommsInit in src/ras/collectives.cc, 2.27.3 to 2.32.3).
  bool proves_absence = true;

  // Adds the communicators of `other`. If both know one, keeps the report with more ranks that
  // answered, else the one with more launches: counts grow. Returns false if some were left out
  // because of kMostAnswerRanks.
  bool Add(const RasAnswer& other);
};

// On failure returns false, with the reason in `error`.
bool ReadRasAnswer(std::string text, RasAnswer* answer, std::string* error);

}  // namespace nccl_pulse::outside

#endif  // EXPORTER_OUTSIDE_RAS_ANSWER_H_
