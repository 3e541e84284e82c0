#include "observe/ranges.h"

#ifdef TUTTI_NVTX
#include <nvtx3/nvToolsExt.h>

#include <array>
#include <cstddef>
#include <memory>

#include "base/collectives.h"
#include "base/config.h"
#include "base/first_use.h"
#include "observe/measures.h"
#endif

namespace tutti::internal::observe {

#ifdef TUTTI_NVTX
namespace {

class NvtxRanges final : public Ranges {
 public:
  explicit NvtxRanges(nvtxDomainHandle_t domain) : domain_(domain) {
    for (int kind = 0; kind < static_cast<int>(kKinds); ++kind) {
      const char* const name = kind == kSends      ? "send"
                               : kind == kReceives ? "recv"
                                                   : name_of(static_cast<Collective>(kind));
      names_[static_cast<std::size_t>(kind)] = ::nvtxDomainRegisterStringA(domain, name);
    }
  }
  [[nodiscard]] std::uint64_t begin(int kind, std::uint64_t bytes) const override {
    nvtxEventAttributes_t attributes{};
    attributes.version = NVTX_VERSION;
    attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    attributes.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    attributes.payload.ullValue = bytes;
    attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
    attributes.message.registered = names_[static_cast<std::size_t>(kind)];
    return ::nvtxDomainRangeStartEx(domain_, &attributes);
  }
  void end(std::uint64_t range) const override { ::nvtxDomainRangeEnd(domain_, range); }

 private:
  const nvtxDomainHandle_t domain_;
  std::array<nvtxStringHandle_t, kKinds> names_{};
};

struct Attached {
  std::unique_ptr<const Ranges> ranges;  // null: no tool
};

Attached attach() {
  // Without it, no tool can be there, and the first call of NVTX would only look for one.
  if (!environment_variable("NVTX_INJECTION64_PATH")) return {};
  const nvtxDomainHandle_t domain = ::nvtxDomainCreateA("tutti");
  if (domain == nullptr) return {};
  return {std::make_unique<NvtxRanges>(domain)};
}

constinit FirstUse<Attached> attached_ranges;

}  // namespace

const Ranges* Ranges::attached() {
  return attached_ranges.get(attach).ranges.get();
}
#else
const Ranges* Ranges::attached() {
  return nullptr;
}
#endif

}  // namespace tutti::internal::observe
