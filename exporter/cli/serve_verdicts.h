// `pulse diagnose --listen`: opens the address and serves verdicts until the process ends.
//
// Thread: the caller's, for good. Returns the exit status when the address is bad or taken.
#ifndef EXPORTER_CLI_SERVE_VERDICTS_H_
#define EXPORTER_CLI_SERVE_VERDICTS_H_

#include <string>

#include "exporter/fleet/verdict_server.h"

namespace nccl_pulse {

int ServeVerdicts(const std::string& listen, VerdictServer::Look look);

}  // namespace nccl_pulse

#endif  // EXPORTER_CLI_SERVE_VERDICTS_H_
