// Limits what clients and other processes may cost the serving process. server.h gives the reasons.
#ifndef EXPORTER_HTTP_LIMITS_H_
#define EXPORTER_HTTP_LIMITS_H_

#include <chrono>

namespace nccl_pulse {

inline constexpr int kMaxConnections = 32;
inline constexpr int kMaxRequestHeadBytes = 8192;
inline constexpr std::chrono::milliseconds kRequestTimeout{5000};
inline constexpr std::chrono::milliseconds kResponseTimeout{10000};
inline constexpr std::chrono::milliseconds kParkedTimeout{30000};
// Fractions of one core, in a job's process and in a dedicated process.
inline constexpr double kJobCpuShare = 0.02;
inline constexpr double kAgentCpuShare = 0.25;
// Parts of that share.
inline constexpr double kPagesShare = 0.6;
inline constexpr double kClientsShare = 0.2;
inline constexpr double kHandoverShare = 0.2;
// CPU time accumulates for this long if unused. For hand-overs it accumulates longer, so that all
// processes of a node may come at once.
inline constexpr std::chrono::seconds kCpuBurst{10};
inline constexpr std::chrono::seconds kHandoverBurst{60};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_LIMITS_H_
