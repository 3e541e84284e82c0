// The version of the library.
#pragma once

namespace tutti::internal {

// Such as "0.1.0". Any thread.
const char* library_version();

// Of what ranks say to each other behind the handshake of their connections: raised with each change of it.
inline constexpr unsigned kProtocol = 9;

}  // namespace tutti::internal
