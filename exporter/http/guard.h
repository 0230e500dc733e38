// Decides which clients may read the pages: the agent's web configuration (exporter/web/guard.h). A
// job's server has no guard and answers everybody.
//
// Thread: the server's. Nothing here blocks.
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
    kPending  // not known yet: ask again after the next of verdicts()
  };

  virtual ~Guard() = default;

  // Whether clients have to speak TLS. Never changes.
  virtual bool is_https() const = 0;
  // For a client that was just accepted; null when its bytes travel as they are.
  virtual std::unique_ptr<Transport> MakeTransport(int fd) = 0;
  // `authorization` is the value of a request's header of that name, "" without one. `fd`: the
  // client's connection.
  virtual Verdict Check(std::string_view authorization, int fd) = 0;
  // Signalled when a verdict is no longer pending.
  virtual const Wake& verdicts() const = 0;
  // Lines for the head of every response, each with its CR LF.
  virtual std::string headers() const = 0;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_GUARD_H_
