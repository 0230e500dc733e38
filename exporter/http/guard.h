// Guard decides which clients a server answers. `pulse agent` and `pulse watch` have one if they
// have a web configuration (exporter/web/guard.h). A server in a job's process answers every
// client.
//
// Thread: server thread only. Never blocks.
#ifndef EXPORTER_HTTP_GUARD_H_
#define EXPORTER_HTTP_GUARD_H_

#include <memory>
#include <string>
#include <string_view>

#include "exporter/http/transport.h"
#include "exporter/http/wake.h"

namespace nccl_pulse {

class Guard {
 public:
  enum class Verdict {
    kGranted,
    kRefused,
    kPending  // not known yet: check again when verdicts() is signaled
  };

  virtual ~Guard() = default;

  // True if clients must use TLS. Never changes.
  virtual bool is_https() const = 0;
  // Returns the transport of a newly accepted client; null without TLS.
  virtual std::unique_ptr<Transport> MakeTransport(int fd) = 0;
  // Checks a request. `authorization`: the value of that header, "" if it is missing. `fd`: the
  // client's connection.
  virtual Verdict Check(std::string_view authorization, int fd) = 0;
  // Returns the signal that a verdict is no longer pending.
  virtual const Wake& verdicts() const = 0;
  // Returns header lines for every response, each with its CR LF.
  virtual std::string headers() const = 0;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_GUARD_H_
