// Finds a scalar of a Decoding message by name, for tests that read or change it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "proto/control.pb.h"

namespace coppice::test {

// Adds the parameter if the message does not have it.
inline proto::Parameter* ParameterNamed(absl::string_view name, proto::Decoding* message) {
  for (proto::Parameter& parameter : *message->mutable_parameters()) {
    if (parameter.name() == name) return &parameter;
  }
  proto::Parameter* added = message->add_parameters();
  added->set_name(std::string(name));
  return added;
}

// Returns the default instance if the message does not have the parameter.
inline const proto::Parameter& ParameterNamed(absl::string_view name,
                                              const proto::Decoding& message) {
  for (const proto::Parameter& parameter : message.parameters()) {
    if (parameter.name() == name) return parameter;
  }
  return proto::Parameter::default_instance();
}

inline void SetInteger(absl::string_view name, int64_t value, proto::Decoding* message) {
  ParameterNamed(name, message)->set_integer(value);
}
inline void SetNumber(absl::string_view name, double value, proto::Decoding* message) {
  ParameterNamed(name, message)->set_number(value);
}

}  // namespace coppice::test
