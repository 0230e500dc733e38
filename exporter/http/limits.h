// Limits what clients and other processes may cost the serving process. exporter/endpoint/server.h
// gives the reasons.
#ifndef EXPORTER_HTTP_LIMITS_H_
#define EXPORTER_HTTP_LIMITS_H_

#include <chrono>

namespace nccl_pulse {

inline constexpr int kMaxConnections = 32;
inline constexpr int kMaxRequestHeadBytes = 8192;
inline constexpr std::chrono::milliseconds kRequestTimeout{5000};    // to send a request
inline constexpr std::chrono::milliseconds kResponseTimeout{10000};  // to receive a response
inline constexpr std::chrono::milliseconds kParkedTimeout{30000};    // to wait for an answer
// Total CPU time for others, as a fraction of one core: in a job's process, and in the agent's.
inline constexpr double kJobCpuShare = 0.02;
inline constexpr double kAgentCpuShare = 0.25;
// Parts of this total: for making pages, for clients' other work, and for processes that hand over
// their measurements to the server.
inline constexpr double kPagesShare = 0.6;
inline constexpr double kClientsShare = 0.2;
inline constexpr double kHandoverShare = 0.2;
// Unused CPU time accumulates for at most this long. For hand-overs it accumulates longer, so that
// all processes of a node may come at once.
inline constexpr std::chrono::seconds kCpuBurst{10};
inline constexpr std::chrono::seconds kHandoverBurst{60};
// Clients are served again after this long, whatever serving them has cost.
inline constexpr std::chrono::seconds kLongestSilence{30};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_LIMITS_H_
