// A link whose messages carry checksums: a decorator over the link of any transport (TUTTI_CHECKSUM).
//
// The stream of each lane becomes a sequence of frames: a header (frame.h), then its payload. The sender sums the
// payload before it sends it, the receiver after it has used it and before it counts as received. A frame that does not
// match, is missing or comes twice fails the lane: consume() returns false, and status() names the peer and the
// transport. RecvLane::unproven() counts what belongs to a frame that is not complete. Both sides of a link must be
// checked ones.
//
// Messages keep the ways of the inner link, except lines and direct puts: a put has no place for the header.
//
// Threads: as the link.
#pragma once

#include <memory>

#include "transport/transport.h"

namespace tutti::internal::transport::checked {

// `peer`: the rank that errors name.
std::unique_ptr<Link> make_checked(std::unique_ptr<Link> link, int peer);

}  // namespace tutti::internal::transport::checked
