// AskRas requests the report of NCCL's RAS (reliability, availability, serviceability) on a job's
// communicators, for ranks that no endpoint knows and for jobs without the plugin.
//
// Since NCCL 2.24 every process of a job listens on localhost:28028 or NCCL_RAS_ADDR. They share
// the port, and the kernel picks a process for each connection. This process answers for all
// processes that share communicators with it, on all nodes.
//
//   pulse   CLIENT PROTOCOL 2    SET FORMAT json    TIMEOUT 2    STATUS
//   RAS     SERVER PROTOCOL n    OK                 OK           the report; then it closes
//
// Only the JSON report is requested. While a communicator is being created, the text report can
// crash the answering rank, and can blame innocent ranks (rasCollCommsInit in
// src/ras/collectives.cc, NCCL 2.27.3 to 2.31.2; the JSON writer does not reach that code). NCCL
// before 2.28.7 answers ERROR to SET FORMAT, and nothing more is sent. DIAGNOSTICS (2.31) and
// CONTROL are never sent: DIAGNOSTICS runs checks in the job's processes, and CONTROL changes the
// job.
//
// The report is kept as it was sent: NCCL 2.28.7 and 2.28.9 omit the comma after "nvml_dev" in
// "missing_ranks", so it may be invalid JSON. It has no completions, Sends, Recvs or graph replays.
// Verdicts on jobs with the plugin don't depend on it; others do (exporter/outside). Source: NCCL
// 2.24 to 2.32, src/ras/client.cc, src/ras/client_support.cc.
//
// Thread: any; blocks, for `patience` at most. Memory: `most_bytes`.
#ifndef EXPORTER_FLEET_RAS_REPORT_H_
#define EXPORTER_FLEET_RAS_REPORT_H_

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>

#include "exporter/fleet/address.h"

namespace nccl_pulse {

inline constexpr std::size_t kMostRasBytes = std::size_t{1} << 20;

struct RasReport {
  std::string json;   // the bytes that RAS sent; "": none, or the listener is not RAS
  std::string error;  // set if the host is not found, or RAS gave no report
  // True if the connection was accepted. The kernel may have picked a stopped process; another
  // connection may then be answered.
  bool is_connected = false;
};

// Parses --ras: "host", "host:port", "[::1]:port"; "off": none; "": NCCL_RAS_ADDR, or RAS' default
// address. Returns false, with the reason in `error`, on failure.
bool RasFromFlag(const std::string& text, std::optional<Address>* address, std::string* error);

RasReport AskRas(const Address& address, std::chrono::milliseconds patience,
                 std::size_t most_bytes = kMostRasBytes);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_RAS_REPORT_H_
