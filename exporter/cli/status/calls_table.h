// CallsTable formats /api/v1/communicators/ID/calls as a table, for `pulse status --calls`.
//
// Ranks are columns; each of the last collectives is a line, the newest last. ">" marks a rank that
// lacks a call other ranks have made, or whose call differs from most ranks'. Fields that are
// missing or have another type are read as unknown.
//
// Thread: any, no state.
#ifndef EXPORTER_CLI_STATUS_CALLS_TABLE_H_
#define EXPORTER_CLI_STATUS_CALLS_TABLE_H_

#include <cstddef>
#include <string>

#include "nlohmann/json_fwd.hpp"

namespace nccl_pulse {

// `lines`: number of collectives; `width`: in characters, 0: unlimited.
std::string CallsTable(const nlohmann::json& page, std::size_t lines, int width);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_STATUS_CALLS_TABLE_H_
