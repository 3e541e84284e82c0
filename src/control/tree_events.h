// The events that the parts of a rank's control tree report to the tree: what they receive or find out about the job's
// ranks. The tree changes the view of the job (job_view.h) and tells its communicators.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "control/control_messages.h"
#include "control/neighbour.h"

namespace tutti::internal::control {

class TreeEvents {
 public:
  virtual ~TreeEvents() = default;
  // ---- From the neighbour `from`. `frame`: as received.
  virtual void on_bye(int rank, const std::string& frame, Neighbour* from) = 0;
  virtual void on_contacts(std::vector<Contact> contacts, const Neighbour* from) = 0;
  virtual void on_attachment(const Attachment& attachment, const std::string& frame, const Neighbour* from) = 0;
  // `from` is null if this rank found out itself.
  virtual void on_death(const Death& death, const Neighbour* from) = 0;
  // ---- This rank's place
  // A rank is about to become a neighbour, perhaps again, and may have received nothing.
  virtual void on_new_neighbour(int rank) = 0;
  // This rank has another parent, or needs none.
  virtual void on_placed() = 0;
  // This rank is no longer part of the tree.
  virtual void on_no_place(const Status& why) = 0;
};

}  // namespace tutti::internal::control
