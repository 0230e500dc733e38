// The rules for arrows, for one communicator each. arrows.cc says which of them apply.
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

// The rank's oldest call in flight, else its last one.
uint64_t FrontOf(const Member& each);
// The collective that it waits in. Completions may be known late, but in dumps: what an idle rank has
// called, and so completed, is not what the others wait in.
uint64_t NumberOf(const ViewWaits& waits, const Member& each);
// It waits in a collective, and which one is known.
bool UsesCall(GraphBuilder& graph, std::size_t i, const Member& each);
// Last of all rules: from the calls to the ranks that have not come.
void AddCalls(GraphBuilder& graph);

// ---- peer_arrows.cc: Send and Recv

void AddPeers(GraphBuilder& graph, std::size_t i);
// Of two ranks, each Send of one is the other's Recv.
void AddPeerByCounts(GraphBuilder& graph, std::size_t i, std::size_t at);

// ---- inside_nccl_arrows.cc: hosts that have called and launched nothing

void AddInsideNccl(GraphBuilder& graph, std::size_t i);
void AddUnreported(GraphBuilder& graph, std::size_t i);
// False: all have joined, or that is not known.
bool AddBeingMade(GraphBuilder& graph, std::size_t i);

// ---- replay_arrows.cc: CUDA graphs, and communicators whose calls are not all counted

void AddReplays(GraphBuilder& graph, std::size_t i);
// Arrows of the GPU of member `at`. `behind_beside_graphs` is filled once for a communicator.
void AddNotComparable(GraphBuilder& graph, std::size_t i, std::size_t at,
                      std::optional<Ranks>* behind_beside_graphs);

}  // namespace nccl_pulse

#endif  // EXPORTER_DIAGNOSIS_WAITS_ARROW_RULES_H_
