// Defines how many ports a node's processes try, and how long they wait for each other.
#ifndef EXPORTER_NODE_NODE_TIMES_H_
#define EXPORTER_NODE_NODE_TIMES_H_

#include <chrono>

namespace nccl_pulse {

// Ports tried after the wanted one.
inline constexpr int kFurtherPorts = 100;
// Longest random delay before a process tries to serve, after its server has ended.
inline constexpr std::chrono::milliseconds kMaxElectionDelay{200};
// Longest wait of a new server for the last server's members before it accepts HTTP clients.
inline constexpr std::chrono::milliseconds kGatherTime{1000};
// If an agent finds no server, the last one may have been killed, and its members, of unknown
// number, are about to elect. For this time the agent accepts no HTTP client, so that they can join
// first.
inline constexpr std::chrono::milliseconds kAgentGatherTime{500};
static_assert(kAgentGatherTime > kMaxElectionDelay);
// Period of the checks between a member and its server: whether the other process is alive, and
// whether their descriptors were reused.
inline constexpr std::chrono::milliseconds kCheckPeriod{1000};
// Like kCheckPeriod, for a server that checks its members: there may be many.
inline constexpr std::chrono::milliseconds kMembersCheckPeriod{5000};
// Period in which an agent looks for files that processes have left behind.
inline constexpr std::chrono::minutes kCleanPeriod{1};
// Time after which a process warns that its server has not answered the hand-over.
inline constexpr std::chrono::milliseconds kSilencePatience{5000};
// Time for which the port is left to an agent that asked for it.
inline constexpr std::chrono::milliseconds kYieldTime{500};
// Longest wait of Node::Open for a slow server, and of an agent for a server to give up its port.
inline constexpr std::chrono::milliseconds kJoinPatience{250};
inline constexpr std::chrono::milliseconds kAgentPatience{10000};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_NODE_TIMES_H_
