#include "exporter/node/peers/peer.h"

namespace nccl_pulse {

void Peer::Reset() {
  segment.Close();
  received.Close();
  connection.Close();
  state = State::kFree;
  said_goodbye = claims_foreign = leaves_finalized = false;
  page_bytes = finalized_bytes = 0;
  credentials = Credentials();
  process = ProcessId();
}

}  // namespace nccl_pulse
