// Includes protozero without its assertions. protozero 1.7.1 leaves a submessage of known size
// marked as open after its end (basic_pbf_writer::close_submessage). Its assertion then fails at
// the next submessage. The output is right: tests read it with parsers, and so does Prometheus.
//
// Every file that uses protozero must include this header, for the templates to have one definition
// in a program.
#ifndef EXPORTER_BASE_PROTOZERO_H_
#define EXPORTER_BASE_PROTOZERO_H_

#define protozero_assert(condition)
#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <protozero/varint.hpp>

#endif  // EXPORTER_BASE_PROTOZERO_H_
