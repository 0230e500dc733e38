// NCCL's RAS (reliability, availability, serviceability) reports a job's communicators: a second
// source for ranks that no endpoint knows.
//
// Since NCCL 2.24 every process of a job listens at localhost:28028 or NCCL_RAS_ADDR; they share the
// port, and the kernel picks one for each connection. It answers for all processes that share
// communicators with it, on all nodes.
//
//   pulse   CLIENT PROTOCOL 2    SET FORMAT json    TIMEOUT 2    STATUS
//   RAS     SERVER PROTOCOL n    OK                 OK           the report; then it closes
//
// The report is requested as JSON only. The text report can crash the rank that answers while a
// communicator is being made, and can blame innocent ranks (rasCollCommsInit in
// src/ras/collectives.cc, NCCL 2.27.3 to 2.31.2; its JSON writer does not reach that code). NCCL
// before 2.28.7 answers ERROR to SET FORMAT, and is asked nothing more. DIAGNOSTICS (2.31) and
// CONTROL are never sent: the former runs checks in the job's processes, the latter changes the job.
//
// The report is kept as it was sent: NCCL 2.28.7 and 2.28.9 omit the comma after "nvml_dev" in
// "missing_ranks", so it may be invalid JSON. It has no completions, Send, Recv or graph replays, and
// no verdict depends on it. Source: NCCL 2.24 to 2.32, src/ras/client.cc, src/ras/client_support.cc.
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
  std::string error;  // of a listener that is RAS
  // Something accepted the connection. All processes of a user on a node share the port, so one that
  // is stopped may have been picked: another connection may be answered.
  bool is_connected = false;
};

// `text`: "host", "host:port", "[::1]:port"; "off": RAS is not asked; "": NCCL_RAS_ADDR, or RAS'
// default address. Returns false with the reason in `error`.
bool RasFromFlag(const std::string& text, std::optional<Address>* address, std::string* error);

RasReport AskRas(const Address& address, std::chrono::milliseconds patience,
                 std::size_t most_bytes = kMostRasBytes);

}  // namespace nccl_pulse

#endif  // EXPORTER_FLEET_RAS_REPORT_H_
