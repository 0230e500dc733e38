// `pulse help connect`: the flags common to all commands that query endpoints.
#include "exporter/cli/command.h"

namespace nccl_pulse {
namespace {

constexpr char kHelp[] =
    R"(Flags of `pulse status`, `diagnose`, `watch`, `capture` and `trace`. Default: the endpoints of this host, ports
9410 to 9417.

Where the endpoints are:
  HOST:PORT             also :PORT, HOST (port 9410), https://HOST:PORT, unix:/path, and the URL in a job's log
                        (NCCL_DEBUG=INFO)
  --endpoint=HOST:PORT  the same

All but status also find many endpoints:
  HOST:PORT ...         any number of addresses, and of --endpoint
  --prometheus=URL      what this Prometheus (or VictoriaMetrics, Mimir) has scraped within 15 minutes
  --targets=FILE        a file in the format of file_sd (JSON or YAML)
  --http-sd=URL         a URL that answers in the format of http_sd
  --dns=NAME:PORT       all addresses of a name, such as a headless service

Which job, for diagnose, capture and trace. capture and trace use it to choose endpoints from --prometheus:
  --job-id=ID           the job with this value of the label job_id
  --comm=ID             the job with this communicator (16 hexadecimal digits)

TLS and passwords:
  --https               use https for addresses without a scheme. The next five flags imply it, unless
                        --prometheus knows the scheme
  --ca-cert=FILE        authorities to trust instead of the system's
  --insecure            trust every certificate
  --cert=FILE           client certificate, for endpoints that ask for one
  --key=FILE            its key
  --server-name=NAME    name in the endpoints' certificates, if it differs from their addresses
  --credentials-file=FILE  one line user:password for the endpoints
  --bearer-file=FILE    one line with a token for the endpoints
  --prometheus-credentials-file=FILE  one line user:password for the Prometheus and http_sd only
  --prometheus-bearer-file=FILE  one line with a token for the Prometheus and http_sd only
  --prometheus-header='NAME: VALUE'  one more header for the Prometheus and http_sd only, such as
                        'X-Scope-OrgID: my-team' for a Mimir with tenants
  --timeout=DURATION    how long each endpoint may take (default 3s; status: 5s); all are asked at once

Every duration has a unit: 500ms, 5s, 10m, 1h30m.
)";

}  // namespace

const Command kConnectTopic = {"connect", "find and reach endpoints: addresses, TLS, passwords",
                               kHelp, nullptr, nullptr};

}  // namespace nccl_pulse
