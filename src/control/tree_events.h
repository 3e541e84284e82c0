// What the parts of a rank's control tree tell the whole: what they hear or find out of the job's ranks. The tree
// changes the view of the job (job_view.h) and tells its communicators.
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
  // ---- From the neighbour `from`. `frame`: as it came.
  virtual void on_bye(int rank, const std::string& frame, Neighbour* from) = 0;
  virtual void on_contacts(std::vector<Contact> contacts, const Neighbour* from) = 0;
  virtual void on_attachment(const Attachment& attachment, const std::string& frame, const Neighbour* from) = 0;
  // Null: found out here.
  virtual void on_death(const Death& death, const Neighbour* from) = 0;
  // ---- Of this rank's place
  // A rank is about to become a neighbour, perhaps anew, and may have heard nothing.
  virtual void on_new_neighbour(int rank) = 0;
  // This rank has another parent, or needs none.
  virtual void on_placed() = 0;
  // It is no part of the tree any more.
  virtual void on_no_place(const Status& why) = 0;
};

}  // namespace tutti::internal::control
