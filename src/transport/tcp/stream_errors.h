// The errors of a stream.
//
// Threads: any; nothing here has state.
#pragma once

#include <string_view>

#include "base/status.h"

namespace tutti::internal::transport::tcp {

// Whether the call must be repeated later, as long as the connection lives.
bool is_temporary(int error_number);

// "tcp connection lost while sending: Broken pipe".
Status lost_while(int peer, std::string_view doing, int error_number);
Status closed_by(int peer);

}  // namespace tutti::internal::transport::tcp
