#include "control/refusal_notices.h"

#include <memory>
#include <utility>

namespace tutti::internal::control {

void RefusalNotices::tell(Refusal refusal, bool tells) {
  const std::uint32_t serial = refusal.serial;
  refusal.rank = members_.self();
  const std::string frame = pack_refusal(members_.name(), refusal);
  if (tells) hear(std::move(refusal), frame, nullptr);
  const MutexLock lock(shared_.mutex);
  if (is_before(shared_.refusal_told, serial)) shared_.refusal_told = serial;
  shared_.changed.notify_all();
}

// Tells the other ranks first: this rank's program may end the process now.
void RefusalNotices::hear(Refusal refusal, const std::string& frame, const Neighbour* from) {
  refusal.rank = members_.rank_of(refusal.rank);
  if (refusal.rank < 0) return;
  const auto [known, is_first] = last_.try_emplace(refusal.rank);
  if (!is_first && !is_before(known->second.serial, refusal.serial)) return;
  known->second = {refusal.serial, frame};
  from == nullptr ? neighbours_.flood(frame, nullptr) : neighbours_.flood_to(members_.name().members, frame, from);
  neighbours_.flush();
  if (refusal.rank == members_.rank()) return;
  std::shared_ptr<const Watching> watching;
  {
    const MutexLock lock(shared_.mutex);
    watching = shared_.watching;
    if (watching == nullptr) shared_.early_refusals[refusal.rank] = refusal;
  }
  if (watching != nullptr && watching->witness.refused) watching->witness.refused(refusal);
}

}  // namespace tutti::internal::control
