// Answers each request by the first handler whose path matches.
//
// Thread: server thread only.
#ifndef EXPORTER_HTTP_RESPONDER_H_
#define EXPORTER_HTTP_RESPONDER_H_

#include <memory>
#include <string>
#include <vector>

#include "exporter/http/connection.h"
#include "exporter/http/guard.h"
#include "exporter/http/handler.h"
#include "exporter/http/http.h"

namespace nccl_pulse {

class Responder {
 public:
  using Time = Connection::Time;

  // `handlers` and `guard` (may be null) must outlive this object.
  Responder(const std::vector<Handler>* handlers, Guard* guard);

  // Answers the connection's received requests, as far as the client takes the responses.
  void AnswerRequests(Connection* connection, Time now);
  // Answers the connection's parked request, if any, if the guard's verdict and the handler's
  // answer are now ready.
  void AnswerParked(Connection* connection, Time now);

 private:
  const Handler* Find(std::string_view path) const;
  bool TakeBody(Connection* connection, HttpRequest* request, Time now);
  bool Admit(Connection* connection, const HttpRequest& request, Time now);
  void Answer(Connection* connection, const HttpRequest& request, Time now);
  void Respond(Connection* connection, const HttpRequest& request, HttpResponse response, Time now);

  const std::vector<Handler>& handlers_;
  Guard* const guard_;
  const std::shared_ptr<const std::string> not_found_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_RESPONDER_H_
