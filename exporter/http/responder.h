// A request gets the answer of the first handler whose path it has.
//
// Thread: the server's.
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

  // Both must outlive this object; `guard` may be null.
  Responder(const std::vector<Handler>* handlers, Guard* guard);

  // Answers what the connection has received, as far as the client takes the answers.
  void AnswerRequests(Connection* connection, Time now);
  // Answers a request that waits for the guard's verdict or for its handler, if there is one by
  // now.
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
