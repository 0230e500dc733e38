// Keys and certificates for tests, fresh each time.
#ifndef TESTS_EXPORTER_WEB_CERTIFICATES_H_
#define TESTS_EXPORTER_WEB_CERTIFICATES_H_

#include <string>

namespace nccl_pulse {

// Writes into `folder`, each as <name>.pem and its key as <name>.key:
//   ca, other_ca   authorities
//   server         of ca, for localhost and 127.0.0.1, P-256
//   rotated, rsa   likewise; rsa with RSA-2048
//   expired        likewise, until 2001
//   client         of ca, for client.example and 127.0.0.1
//   stranger       of other_ca, for client.example
void WriteCertificates(const std::string& folder);

}  // namespace nccl_pulse

#endif  // TESTS_EXPORTER_WEB_CERTIFICATES_H_
