// Says how many ports the processes of a node try, and how long they wait for each other.
#ifndef EXPORTER_NODE_NODE_TIMES_H_
#define EXPORTER_NODE_NODE_TIMES_H_

#include <chrono>

namespace nccl_pulse {

// So many ports are tried behind the wanted one.
inline constexpr int kFurtherPorts = 100;
inline constexpr std::chrono::milliseconds kMaxElectionDelay{200};
inline constexpr std::chrono::milliseconds kGatherTime{1000};
// An agent that found no server may follow one that was killed. The members of that one are about
// to elect, and it is not known how many they are. For this time the agent accepts no HTTP client.
inline constexpr std::chrono::milliseconds kAgentGatherTime{500};
static_assert(kAgentGatherTime > kMaxElectionDelay);
// How often a member and its server look whether the other one is alive, beyond what their
// connection tells, and whether their own descriptors are still theirs.
inline constexpr std::chrono::milliseconds kCheckPeriod{1000};
// The same, of a server's members, of whom there may be many.
inline constexpr std::chrono::milliseconds kMembersCheckPeriod{5000};
// An agent looks so often for files that processes have left behind.
inline constexpr std::chrono::minutes kCleanPeriod{1};
inline constexpr std::chrono::milliseconds kSilencePatience{5000};
// An agent that asked for the port is left alone with it for so long.
inline constexpr std::chrono::milliseconds kYieldTime{500};
// Open waits so long for a server that takes its time, and an agent for one that yields.
inline constexpr std::chrono::milliseconds kJoinPatience{250};
inline constexpr std::chrono::milliseconds kAgentPatience{10000};

}  // namespace nccl_pulse

#endif  // EXPORTER_NODE_NODE_TIMES_H_
