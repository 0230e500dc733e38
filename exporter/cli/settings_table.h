// SettingsTable formats processes' answers to `pulse settings` and `pulse set`.
//
// Thread: any, no state. Texts of processes are already printable (HandoverMessage::Text).
#ifndef EXPORTER_CLI_SETTINGS_TABLE_H_
#define EXPORTER_CLI_SETTINGS_TABLE_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "exporter/control/control_client.h"

namespace nccl_pulse {

// Returns one line per setting and process: value and origin.
std::string SettingsTable(const std::vector<ControlAnswer>& answers, absl::Time now);

// Queries the processes of this node and prints the table. Returns the exit status of `pulse
// settings`.
int ShowSettings(absl::Duration patience);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_SETTINGS_TABLE_H_
