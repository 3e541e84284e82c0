// tutti for C++17 and later: owners for the handles of tutti/tutti.h, and collectives that take the
// datatype from their arguments. Header only; link with libtutti.
//
// Every function that fails throws tutti::Error. Destructors do not throw. query() returns false while operations are
// pending and throws if one failed. The rules of threads, buffers, streams and failures are those of tutti.h. This
// header includes all others of the C++ layer, which can also be included alone.
#ifndef TUTTI_TUTTI_HPP_
#define TUTTI_TUTTI_HPP_

#include "tutti/communicator.hpp"
#include "tutti/error.hpp"
#include "tutti/group.hpp"
#include "tutti/memory.hpp"
#include "tutti/operator.hpp"
#include "tutti/range.hpp"
#include "tutti/stream.hpp"
#include "tutti/tutti.h"
#include "tutti/types.hpp"

#endif  // TUTTI_TUTTI_HPP_
