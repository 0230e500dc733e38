// Prints what /api/v1/communicators says as a table: `pulse status`.
//
// What is wrong and what cannot be seen comes first, in sentences. Then comes every communicator
// with its ranks; those in trouble are marked. Fields that are missing or have another type are
// read as unknown: the endpoint may have another version.
//
// Thread: any, no state.
#ifndef EXPORTER_CLI_STATUS_STATUS_TABLE_H_
#define EXPORTER_CLI_STATUS_STATUS_TABLE_H_

#include <string>

#include "nlohmann/json_fwd.hpp"

namespace nccl_pulse {

struct StatusOptions {
  bool color = false;
  bool all = false;  // communicators that ended, too
  int width = 100;   // columns, for sentences
  // Columns of a table that fit; what is further right is left out. 0: all.
  int table_width = 0;
};

// `before`: an earlier page of the same endpoint, for rates; null: no rates.
std::string StatusTable(const nlohmann::json& page, const nlohmann::json* before,
                        const StatusOptions& options);

// What the page says, in a word: for exit statuses.
enum class Finding {
  kNone,        // no hang is suspected, or only one that lasts no longer than has been usual
  kHang,        // one is
  kIncomplete,  // none is, but processes were lost or are not running, or too little is seen
};
Finding FindingOf(const nlohmann::json& page);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_STATUS_STATUS_TABLE_H_
