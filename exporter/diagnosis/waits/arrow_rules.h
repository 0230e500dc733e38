// The rules that add arrows to the graph of waits (graph.h; an arrow A ──► B means that A waits for
// B), each for one communicator. arrows.cc decides which rules apply. Parameters: `i`, index of the
// communicator's view (rank_view.h); `at`, index of a rank in it.
//
// Thread: any, no state.
#ifndef EXPORTER_DIAGNOSIS_WAITS_ARROW_RULES_H_
#define EXPORTER_DIAGNOSIS_WAITS_ARROW_RULES_H_

#include <cstddef>
#include <cstdint>
#include <optional>

#include "exporter/diagnosis/waits/graph_builder.h"

namespace nccl_pulse {

// ---- call_arrows.cc: collectives

// Returns the number of the rank's oldest collective in flight, or else of its last one.
uint64_t FrontOf(const Member& each);
// Returns the number of the collective in which the rank waits. Completions may be known late,
// except in dumps: an idle rank has completed its calls there, so the others don't wait in them.
uint64_t NumberOf(const ViewWaits& waits, const Member& each);
// True if the rank waits in a collective whose number is known.
bool UsesCall(GraphBuilder& graph, std::size_t i, const Member& each);
// Adds arrows from calls to the ranks that have not arrived. Call after all other rules.
void AddCalls(GraphBuilder& graph);

// ---- peer_arrows.cc: Send and Recv

void AddPeers(GraphBuilder& graph, std::size_t i);
// Adds arrows in a communicator of two ranks, where each Send of one rank matches a Recv of the
// other.
void AddPeerByCounts(GraphBuilder& graph, std::size_t i, std::size_t at);

// ---- inside_nccl_arrows.cc: hosts that have called without a launch

void AddInsideNccl(GraphBuilder& graph, std::size_t i);
void AddUnreported(GraphBuilder& graph, std::size_t i);
// Adds arrows in a communicator that is being created. Returns false if all ranks have joined, or
// if it is not known which ranks have.
bool AddBeingMade(GraphBuilder& graph, std::size_t i);

// ---- replay_arrows.cc: CUDA graphs, and communicators whose calls are not all counted

void AddReplays(GraphBuilder& graph, std::size_t i);
// Adds arrows of a member's GPU. `behind_beside_graphs` caches the ranks with fewer calls outside
// of graphs, for all members of the communicator.
void AddNotComparable(GraphBuilder& graph, std::size_t i, std::size_t at,
                      std::optional<Ranks>* behind_beside_graphs);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WAITS_ARROW_RULES_H_
