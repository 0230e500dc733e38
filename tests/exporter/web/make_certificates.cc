// make_certificates FOLDER
#include "tests/exporter/web/certificates.h"

int main(int argc, char** argv) {
  if (argc != 2) return 1;
  nccl_pulse::WriteCertificates(argv[1]);
  return 0;
}
