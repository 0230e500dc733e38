// EndpointLoop runs the server thread. It joins three parts: ServerLoop (exporter/http) serves
// clients; Node elects the serving process, listens, and receives other processes' segments; Pages
// renders responses from these segments.
//
// Thread: Open on the caller's thread, before the server thread starts; all else on the server
// thread.
#ifndef EXPORTER_ENDPOINT_ENDPOINT_LOOP_H_
#define EXPORTER_ENDPOINT_ENDPOINT_LOOP_H_

#include <string>
#include <string_view>
#include <vector>

#include "exporter/endpoint/pages.h"
#include "exporter/endpoint/server_options.h"
#include "exporter/http/entrance.h"
#include "exporter/http/server_loop.h"
#include "exporter/http/wake.h"
#include "exporter/node/node.h"

namespace nccl_pulse {

class EndpointLoop {
 public:
  explicit EndpointLoop(ServerOptions options);
  EndpointLoop(const EndpointLoop&) = delete;
  EndpointLoop& operator=(const EndpointLoop&) = delete;

  bool Open(std::string* error) { return node_.Open(error); }
  const Node& node() const { return node_; }

  // See ServerLoop.
  template <typename OnWake>
  void Round(const Wake& wake, const OnWake& on_wake) {
    loop_.Round(wake, on_wake);
  }
  void StartOver(std::string_view what) noexcept { loop_.StartOver(what); }
  void SayGoodbye() { node_.SayGoodbye(); }
  void Close() { loop_.Close(); }

 private:
  // The node's listener and hand-over sockets, as ServerLoop polls them.
  class NodeEntrance : public Entrance {
   public:
    explicit NodeEntrance(Node* node) : node_(*node) {}
    int listener() const override { return node_.is_serving() ? node_.listener() : -1; }
    Time accept_from() const override { return node_.accept_from(); }
    Time next() const override { return node_.next(); }
    void AppendPolled(std::vector<pollfd>* polled, bool may_work) override {
      node_.AppendPolled(polled, may_work);
    }
    void Handle(const pollfd* polled, Time now) override { node_.Handle(polled, now); }
    void Close() override { node_.Close(); }

   private:
    Node& node_;
  };

  ServerLoop::Options LoopOptions();

  const ServerOptions options_;
  Node node_;
  NodeEntrance entrance_;
  Pages pages_;
  ServerLoop loop_;
};

}  // namespace nccl_pulse

#endif  // EXPORTER_ENDPOINT_ENDPOINT_LOOP_H_
