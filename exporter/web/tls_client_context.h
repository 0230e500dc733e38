// TLS towards an endpoint or a Prometheus, with BoringSSL: client side, non-blocking, versions 1.2
// and 1.3. The server's certificate is checked, and its name, unless that was switched off.
//
// Thread: any makes a context; whoever uses a transport, one at a time.
#ifndef EXPORTER_WEB_TLS_CLIENT_CONTEXT_H_
#define EXPORTER_WEB_TLS_CLIENT_CONTEXT_H_

#include <memory>
#include <string>

#include "exporter/http/transport.h"

namespace nccl_pulse {

// A Transport that knows why it has failed.
class TlsClientTransport : public Transport {
 public:
  // "" while it has not: "its certificate is not trusted: certificate has expired".
  virtual std::string problem() const = 0;
};

class TlsClientContext {
 public:
  // `ca_file`: authorities to trust, in PEM form; "": those of the system. Null with the file and
  // what is wrong in `error`.
  static std::shared_ptr<const TlsClientContext> Make(const std::string& ca_file, bool is_insecure,
                                                      std::string* error);

  virtual ~TlsClientContext() = default;

  // `host`: a name or an address, as it must stand in the certificate. Throws when memory runs out.
  virtual std::unique_ptr<TlsClientTransport> Connect(int fd, const std::string& host) const = 0;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_WEB_TLS_CLIENT_CONTEXT_H_
