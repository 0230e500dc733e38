// Prints what /api/v1/communicators/ID/calls says as a table: `pulse status --calls`.
//
// The ranks stand side by side, a line for each of the last collectives, the newest last. What is
// odd in a line is marked with ">": a rank that has not called what others have, or called
// something else than most. Fields that are missing or have another type are read as unknown.
//
// Thread: any, no state.
#ifndef EXPORTER_CLI_STATUS_CALLS_TABLE_H_
#define EXPORTER_CLI_STATUS_CALLS_TABLE_H_

#include <cstddef>
#include <string>

#include "nlohmann/json_fwd.hpp"

namespace nccl_pulse {

// `lines`: so many collectives; `width`: columns, 0: as many as it takes.
std::string CallsTable(const nlohmann::json& page, std::size_t lines, int width);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_STATUS_CALLS_TABLE_H_
