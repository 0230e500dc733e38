#include "exporter/diagnosis/exchange.h"

#include <algorithm>
#include <cstdint>

namespace nccl_pulse {
namespace {

// Whether that rank's launches have `parts` Sends and as many Recvs each. Exactly: a rank that is
// just calling looks like one that has made a launch less, whose numbers are off for good.
bool HasParts(const RankView& rank, uint64_t parts) {
  const CommunicatorSnapshot& communicator = *rank.communicator;
  const uint64_t collectives = Total(CollectiveCalls(communicator));
  if (communicator.launches <= collectives) return false;
  const uint64_t exchanges = communicator.launches - collectives;
  return exchanges <= UINT64_MAX / parts && rank.CallsOf("Send") == exchanges * parts &&
         rank.CallsOf("Recv") == exchanges * parts;
}

}  // namespace

bool AreLaunchesExchanges(const CommunicatorView& view) {
  if (view.nranks < 3) return false;
  const auto peers = static_cast<uint64_t>(view.nranks - 1);
  for (const uint64_t parts : {peers, peers + 1}) {
    const bool have_all =
        std::all_of(view.ranks.begin(), view.ranks.end(), [parts](const RankView& rank) {
          return AreCallsKnown(*rank.process, *rank.communicator) == CallsKnown::kYes &&
                 HasParts(rank, parts);
        });
    if (have_all) return true;
  }
  return false;
}

Ranks AwaitedInExchange(const CommunicatorFacts& facts) {
  if (!facts.are_all_seen() || facts.calls_known != CallsKnown::kYes) return {};
  // A rank that has nothing to exchange this time makes fewer calls, too.
  if (!AreLaunchesExchanges(*facts.view)) return {};
  Ranks idle;
  uint64_t sends = 0;
  uint64_t receives = 0;
  for (const RankView& rank : facts.view->ranks) {
    if (rank.state == RankView::State::kLive && rank.activity.is_idle()) {
      idle.push_back(&rank);
      continue;
    }
    if (!Contains(facts.stuck, &rank) && !Contains(facts.ended_waiting, &rank)) return {};
    const bool is_first = sends == 0 && receives == 0;
    if (is_first) {
      sends = rank.CallsOf("Send");
      receives = rank.CallsOf("Recv");
    }
    if (rank.CallsOf("Send") != sends || rank.CallsOf("Recv") != receives) return {};
  }
  for (const RankView* rank : idle) {
    if (rank->CallsOf("Send") >= sends || rank->CallsOf("Recv") >= receives) return {};
  }
  return idle.size() < facts.stuck.size() ? idle : Ranks();
}

Ranks NotBegunInExchange(const CommunicatorFacts& facts) {
  const Ranks& live = facts.live;
  if (facts.stuck.size() != live.size()) return {};
  Ranks late;
  bool is_any_begun = false;
  for (const RankView* rank : live) {
    is_any_begun |= rank->activity.oldest_launch == OldestLaunch::kBegun;
    if (rank->activity.oldest_launch == OldestLaunch::kNotBegun) late.push_back(rank);
  }
  return is_any_begun ? late : Ranks();
}

}  // namespace nccl_pulse
