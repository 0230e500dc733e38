// Replaces tls_client.cc in builds with --//exporter/web:with_tls=false.
#include "exporter/web/tls_client.h"

namespace nccl_pulse {

std::shared_ptr<const TlsClient> TlsClient::Make(const TlsClientConfig&, std::string* error) {
  *error =
      "this program was built without TLS (--config=demo) and can't use https://. Build it without "
      "that option";
  return nullptr;
}

}  // namespace nccl_pulse
