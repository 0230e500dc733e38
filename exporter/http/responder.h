// Which answer a request gets.
//
// Thread: the server's.
#ifndef EXPORTER_HTTP_RESPONDER_H_
#define EXPORTER_HTTP_RESPONDER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "exporter/http/connection.h"
#include "exporter/http/http.h"
#include "exporter/http/pages.h"
#include "exporter/http/server_options.h"
#include "exporter/node/node.h"

namespace nccl_pulse {

class Responder {
 public:
  using Time = Connection::Time;

  // All must outlive this object.
  Responder(const ServerOptions* options, Pages* pages, const Node* node);

  // Answers what the connection has received, as far as the client takes the answers.
  void AnswerRequests(Connection* connection, Time now);
  // Answers a request that waits for the guard's verdict, if there is one by now.
  void AnswerParked(Connection* connection, Time now);

 private:
  using Body = std::shared_ptr<const std::string>;

  bool Admit(Connection* connection, const HttpRequest& request, Time now);
  void Answer(Connection* connection, const HttpRequest& request, Time now);
  void RespondPage(Connection* connection, const HttpRequest& request, std::size_t kind, Time now);
  void RespondCalls(Connection* connection, const HttpRequest& request, std::string_view comm,
                    Time now);
  void RespondAnswer(Connection* connection, const HttpRequest& request, std::size_t kind,
                     const PageCache::Answer& answer, Time now);
  void Respond(Connection* connection, const HttpRequest& request, int status,
               std::string_view type, Body body, Time now, std::string_view more = "");

  const ServerOptions& options_;
  Pages& pages_;
  const Node& node_;
  const Body status_page_;
  const Body healthy_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_HTTP_RESPONDER_H_
