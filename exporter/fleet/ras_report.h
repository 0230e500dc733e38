// What NCCL's own RAS (reliability, availability, serviceability) says of a job, word for word: for
// ranks that no endpoint knows. NCCL 2.24 and newer listen in one process of each node, at
// localhost:28028 or NCCL_RAS_ADDR.
//
//   we    CLIENT PROTOCOL 2    TIMEOUT 2    VERBOSE STATUS
//   RAS   SERVER PROTOCOL n    OK           the report; then it closes
//
// Nothing is concluded from the report: its form differs between releases. It has each
// communicator's ranks, dead and unresponsive peers, and counts of collectives; RAS does not know
// what has completed, Send and Recv, or replays of graphs. Source: NCCL 2.24 to 2.31,
// src/ras/client.cc (connectToNCCL, getNCCLStatus), src/ras/client_support.cc (rasClientInitSocket,
// rasClientEventLoop), src/ras/ras_internal.h (port, protocol, times).
//
// From 2.31 on RAS also looks at the hardware (DIAGNOSTICS, `ncclras -D`), a line for each finding
// on a communicator:
//
//   HOST:PID NCCL DIAG [INFO] ECC: uncorrected volatile errors on rank(s) {3} (worst=2) across 8 ranks in comm 0x...
//
// Source: 2.31.2, src/ras/diagnostics.cc, diagnostics_gpu.cc, diagnostics_checks_common.cc; 2.32,
// diagnostics_xid.cc ("Xid 79 detected 1 time on host ...") and diagnostics_net.cc.
//
// Thread: any; blocks, for `patience` at most. Memory: kMostRasBytes.
#ifndef EXPORTER_FLEET_RAS_REPORT_H_
#define EXPORTER_FLEET_RAS_REPORT_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "exporter/fleet/address.h"

namespace nccl_pulse {

inline constexpr std::size_t kMostRasBytes = std::size_t{1} << 20;

struct RasReport {
  // "": nobody listens there, or somebody else does, or `error` says what went wrong. Lines of
  // printable text: what is not became '?'.
  std::string text;
  std::string error;  // of one that said that it is RAS
};

// `text`: "host", "host:port", "[::1]:port"; "off": nobody is asked; "": as NCCL_RAS_ADDR says, or
// where RAS listens without it. False with what is wrong in `error`.
bool RasFromFlag(const std::string& text, std::optional<Address>* address, std::string* error);

RasReport AskRas(const Address& address, std::chrono::milliseconds patience);

// What RAS found wrong with the GPUs, drivers and links of the job with these communicators,
// kMostRasFindings lines at most. Empty: nothing, or nobody answers, or NCCL is older. What differs
// in the environment is left out: it may hold secrets, and NCCL Pulse knows it.
inline constexpr std::size_t kMostRasFindings = 16;
std::vector<std::string> AskRasForFaults(const Address& address, std::chrono::milliseconds patience,
                                         const std::set<uint64_t>& comm_ids);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_RAS_REPORT_H_
