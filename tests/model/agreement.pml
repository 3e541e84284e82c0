// The agreement of the members of a communicator over a job's control tree, while ranks die: a model for spin.
//
// Ranks 0..N-1 are connected by a tree. Each member of the communicator contributes to an instance of the agreement.
// All members that survive must return the same decision: the contributions that it contains, and the members that have
// failed. check_agreement.py says which configurations are checked.
//
// What is modelled:
// - Connections are FIFO. A message is delivered at any time after it was sent.
// - A rank dies at any time. What was in flight to it is lost. A neighbour receives any prefix of what the dead rank
//   has sent, and detects the death at any time. If it hears of the death from others first, it may still receive more.
// - A rank forwards each death that is new to it to its other neighbours.
// - A rank without a parent connects to any lower living rank, at any time. Both first exchange the deaths they know.
// - If no living rank is connected to a dead rank, the lowest living rank detects its death.
//
// Parameters that -D sets when spin makes the search:
#ifndef N
#define N 4          // ranks: 3, 4 or 5
#endif
#ifndef INSTANCES
#define INSTANCES 2  // the most consecutive agreements of the communicator: 1 or 2
#endif
// Parameters that the search reads from its environment, so that one search serves all configurations: MEMBERS of the
// communicator, a set, all if it is 0; ARITY, the children per rank in the first tree; DEATHS, at most; AGREEMENTS, one
// after another; MUTATION, the number of a rule that the protocol then lacks: a property must fail.
#define DECIDES_EARLY 1
#define FORGETS_DECISION 2
#define KEEPS_REPORTS 3
#define RELAY_KEEPS_DECISION 4
#define NO_BALLOT_CHECK 5
#define NO_NEW_REPORT 6
#define NO_ANSWER 7
//
// The rules, for one instance of the agreement:
// R1. A rank reports to its parent. It does not wait for its children: a child below which there is no member may have
//     nothing to report. A report is also a promise to accept no decision of a lower ballot. When the ballot of a rank
//     rises, the rank forgets the reports of others. A member keeps its own contribution and decision.
// R2. The coordinator, the lowest living rank, decides when it has a report under its ballot from every member that it
//     does not know to be dead. If a report contains a decision, it takes this one.
// R3. A rank accepts a decision of its current ballot only, and forwards it. It sends the decision to a new child that
//     reports.
// R4. A rank forgets an instance when the next one is decided.

#define ALL ((1 << N) - 1)
#define BIT(i) (1 << (i))
#define LOWEST(set) ((set) & 1 -> 0 : ((set) & 2 -> 1 : ((set) & 4 -> 2 : ((set) & 8 -> 3 : 4))))
#define IS_MEMBER(i) ((members & BIT(i)) != 0)
#define AT(k, i) ((k) * N + (i))

// Not part of the state: these do not change.
hidden byte members, agreements, mutation;

// A report carries a ballot, contributions, and a decision or nothing; a decision carries a ballot and a decision; a
// greeting (the first message of a new connection) and deaths carry a set of dead ranks.
#define GREETING 0
#define NEWS 1  // of deaths
#define REPORT 2
#define DECISION 3

// The messages of all connections, in one list, so that a state is short: ordered by their connection, and those of one
// connection in the order in which they were sent. Each is one number: the connection, type, instance, ballot, and three
// sets. It is not 0, because no rank is connected to itself.
#define ROOM 16  // an assertion checks that it suffices
#define CONNECTION(source, target) ((source) * N + (target))
#define PACKED(connection, type, k, ballot, set, value, failed) \
  (((connection) << 21) | ((type) << 19) | ((k) << 18) | ((ballot) << 15) | ((set) << 10) | ((value) << 5) | (failed))
int messages[ROOM];
int pending;          // the connections that have messages: a set
byte in_flight;       // the number of messages
#define HAS_MAIL(source, target) ((pending & BIT(CONNECTION(source, target))) != 0)

byte up = ALL;                      // the living ranks, which no rank knows
byte dead[N];                       // the dead ranks that each rank knows
byte neighbours[N];                 // the connected ranks: at most one is lower, the parent
byte contributed[INSTANCES * N];    // the own contribution, and those reported under the current ballot
byte heard[INSTANCES * N];          // a decision in reports under the current ballot: its contributions, 0 for nothing
byte heard_failed[INSTANCES * N];   // and its failed members
byte decided[INSTANCES * N];        // the decision that the rank has accepted: a member returns it
byte decided_failed[INSTANCES * N];
byte sent[INSTANCES * N];           // the neighbours that know the decision of the current ballot; 0: none is accepted
byte forgotten;                     // the ranks that have forgotten the first instance
byte deaths_left;

// The ballot of a rank: the lowest rank that it believes to be alive, which is the coordinator.
#define BALLOT(i) LOWEST(ALL & ~dead[i])
#define PARENT(i) (neighbours[i] & (BIT(i) - 1))
#define RETURNED(k, i) (decided[AT(k, i)] != 0 || (k == 0 && (forgotten & BIT(i)) != 0))
// A dead rank and a rank that is no member need no decision.
#define SETTLED(k, i) ((up & members & BIT(i)) == 0 || RETURNED(k, i))
#if N == 3
#define ALL_SETTLED(k) (SETTLED(k, 0) && SETTLED(k, 1) && SETTLED(k, 2))
#elif N == 4
#define ALL_SETTLED(k) (SETTLED(k, 0) && SETTLED(k, 1) && SETTLED(k, 2) && SETTLED(k, 3))
#else
#define ALL_SETTLED(k) (SETTLED(k, 0) && SETTLED(k, 1) && SETTLED(k, 2) && SETTLED(k, 3) && SETTLED(k, 4))
#endif
#if INSTANCES == 2
#define ENDED (agreements == 1 -> ALL_SETTLED(0) : ALL_SETTLED(1))
#else
#define ENDED ALL_SETTLED(0)
#endif

#define KNOWS_DECISION(at) (decided[at] != 0 && mutation != FORGETS_DECISION)

// Temporary values of one step, not part of the state.
hidden byte type_, k_, ballot_, set_, value_, failed_, new_, before_, to_, at_, other_, slot_;
hidden int message_, connection_;
hidden byte each_, instance_;

inline send(source, target, type, k, ballot, set, value, failed) {
  if
  :: (up & BIT(target)) != 0 ->
    assert(in_flight < ROOM);
    connection_ = CONNECTION(source, target);
    message_ = PACKED(connection_, type, k, ballot, set, value, failed);
    slot_ = in_flight;
    do
    :: slot_ > 0 && (messages[slot_ - 1] >> 21) > connection_ -> messages[slot_] = messages[slot_ - 1]; slot_--
    :: else -> break
    od;
    messages[slot_] = message_;
    in_flight++;
    pending = pending | BIT(connection_)
  :: else
  fi
}

// Takes the next message of the connection.
inline receive(source, target) {
  connection_ = CONNECTION(source, target);
  slot_ = 0;
  do
  :: (messages[slot_] >> 21) != connection_ -> slot_++
  :: else -> break
  od;
  message_ = messages[slot_];
  in_flight--;
  if
  :: slot_ == in_flight || (messages[slot_ + 1] >> 21) != connection_ -> pending = pending & ~BIT(connection_)
  :: else
  fi;
  do
  :: slot_ < in_flight -> messages[slot_] = messages[slot_ + 1]; slot_++
  :: else -> break
  od;
  messages[in_flight] = 0
}

// R1: a rank reports to its parent once its own contribution is there, again when it has something new, and to a new
// parent. Under a ballot whose decision it has, it reports nothing.
inline send_report(i, k) {
  at_ = AT(k, i);
  if
  :: PARENT(i) != 0 && sent[at_] == 0 &&
     (contributed[at_] != 0 || KNOWS_DECISION(at_)) && (!IS_MEMBER(i) || (contributed[at_] & BIT(i)) != 0) ->
    to_ = LOWEST(neighbours[i]);
    if
    :: KNOWS_DECISION(at_) -> send(i, to_, REPORT, k, BALLOT(i), contributed[at_], decided[at_], decided_failed[at_])
    :: else -> send(i, to_, REPORT, k, BALLOT(i), contributed[at_], heard[at_], heard_failed[at_])
    fi
  :: else
  fi
}

// R3: accepts value_, failed_ under the current ballot, and forwards it to the neighbours except those in `known`.
inline accept(i, k, known) {
  at_ = AT(k, i);
  if
  :: IS_MEMBER(i) && decided[at_] != 0 -> assert(decided[at_] == value_ && decided_failed[at_] == failed_)
  :: IS_MEMBER(i) && decided[at_] == 0 ->
    assert(((value_ | failed_) & members) == members);  // the contribution of each member that has not failed
    assert((failed_ & up) == 0);                        // no living member has failed
    for (each_ : 0 .. N - 1) {
      if
      :: (up & members & BIT(each_)) != 0 ->
        assert(k == 1 || (forgotten & BIT(each_)) == 0);
        other_ = AT(k, each_);
        // Safety: no two living members return different decisions.
        assert(decided[other_] == 0 || (decided[other_] == value_ && decided_failed[other_] == failed_))
      :: else
      fi
    }
  :: else
  fi;
  decided[at_] = value_;
  decided_failed[at_] = failed_;
  sent[at_] = neighbours[i] | BIT(i);
  heard[at_] = 0;
  heard_failed[at_] = 0;
  for (each_ : 0 .. N - 1) {
    if
    :: (neighbours[i] & ~(known) & BIT(each_)) != 0 -> send(i, each_, DECISION, k, BALLOT(i), 0, value_, failed_)
    :: else
    fi
  }
#if INSTANCES == 2
  // R4: the rank forgets the instance before.
  if
  :: k == 1 ->
    forgotten = forgotten | BIT(i);
    at_ = AT(0, i);
    contributed[at_] = 0; heard[at_] = 0; heard_failed[at_] = 0;
    decided[at_] = 0; decided_failed[at_] = 0; sent[at_] = 0
  :: else
  fi
#endif
}

// R2: the coordinator decides if it has heard a report under its ballot from each living member.
#define HAS_HEARD_ALL(i, at) ((members & ~dead[i] & ~contributed[at]) == 0 || \
  (mutation == DECIDES_EARLY && ((contributed[at] & BIT(i)) != 0 || !IS_MEMBER(i))))
inline decide(i, k) {
  at_ = AT(k, i);
  if
  :: BALLOT(i) == i && sent[at_] == 0 && contributed[at_] != 0 && HAS_HEARD_ALL(i, at_) ->
    if
    :: KNOWS_DECISION(at_) -> value_ = decided[at_]; failed_ = decided_failed[at_]
    :: !KNOWS_DECISION(at_) && heard[at_] != 0 -> value_ = heard[at_]; failed_ = heard_failed[at_]
    :: else -> value_ = contributed[at_]; failed_ = dead[i] & members
    fi;
    accept(i, k, 0)
  :: else
  fi
}

inline report_or_decide(i, k) {
  if
  :: BALLOT(i) == i -> decide(i, k)
  :: else -> send_report(i, k)
  fi
}

// Rank i hears of the deaths in `set`, from the rank `from` or by itself (from == N).
inline learn(i, set, from) {
  new_ = set & ~dead[i];
  if
  :: new_ != 0 ->
    before_ = BALLOT(i);
    dead[i] = dead[i] | new_;
    neighbours[i] = neighbours[i] & ~new_;
    for (each_ : 0 .. N - 1) {
      if
      :: (neighbours[i] & BIT(each_)) != 0 && each_ != from -> send(i, each_, NEWS, 0, 0, new_, 0, 0)
      :: else
      fi
    }
    for (instance_ : 0 .. INSTANCES - 1) {
      at_ = AT(instance_, i);
      sent[at_] = sent[at_] & ~new_;
      if
      :: BALLOT(i) != before_ ->
        // R1: what was reported under a lower ballot is forgotten. So is what a relay has accepted: it has returned it
        // to nobody, and later coordinators need not have heard of it.
        if
        :: mutation != KEEPS_REPORTS ->
          contributed[at_] = contributed[at_] & BIT(i);
          heard[at_] = 0;
          heard_failed[at_] = 0
        :: else
        fi;
        sent[at_] = 0;
        if
        :: !IS_MEMBER(i) && mutation != RELAY_KEEPS_DECISION -> decided[at_] = 0; decided_failed[at_] = 0
        :: else
        fi;
        report_or_decide(i, instance_)
      :: else -> decide(i, instance_)
      fi
    }
  :: else
  fi
}

// The connection from rank j to rank i ends: what is left in it is lost.
inline drain(j, i) {
  do
  :: HAS_MAIL(j, i) -> receive(j, i)
  :: else -> break
  od
}

inline contribute(i, k) {
  contributed[AT(k, i)] = contributed[AT(k, i)] | BIT(i);
  report_or_decide(i, k)
}

// Rank i takes the next message of rank j.
inline deliver(j, i) {
  receive(j, i);
  type_ = (message_ >> 19) & 3;
  k_ = (message_ >> 18) & 1;
  ballot_ = (message_ >> 15) & 7;
  set_ = (message_ >> 10) & 31;
  value_ = (message_ >> 5) & 31;
  failed_ = message_ & 31;
  if
  :: type_ == GREETING ->
    if
    :: (dead[i] & ~set_) != 0 -> send(i, j, NEWS, 0, 0, dead[i] & ~set_, 0, 0)
    :: else
    fi;
    neighbours[i] = neighbours[i] | (BIT(j) & ~dead[i]);
    learn(i, set_, j)
  :: type_ == NEWS -> learn(i, set_, j)
  :: type_ == REPORT && (k_ == 1 || (forgotten & BIT(i)) == 0) ->
    assert(ballot_ <= BALLOT(i));  // deaths arrive before what was sent after them
    at_ = AT(k_, i);
    if
    :: ballot_ < BALLOT(i)  // its sender will hear of the death, and report again
    :: ballot_ == BALLOT(i) && sent[at_] != 0 ->
      if
      :: mutation != NO_ANSWER && (sent[at_] & BIT(j)) == 0 ->  // a new child
        sent[at_] = sent[at_] | BIT(j);
        send(i, j, DECISION, k_, ballot_, 0, decided[at_], decided_failed[at_])
      :: else
      fi
    :: else ->
      new_ = set_ & ~contributed[at_];
      contributed[at_] = contributed[at_] | set_;
      assert(value_ == 0 || heard[at_] == 0 || (heard[at_] == value_ && heard_failed[at_] == failed_) ||
        mutation == RELAY_KEEPS_DECISION);
      if
      :: value_ != 0 && heard[at_] == 0 -> heard[at_] = value_; heard_failed[at_] = failed_; new_ = ALL
      :: else
      fi;
      if
      :: new_ != 0 -> report_or_decide(i, k_)
      :: else
      fi
    fi
  :: type_ == DECISION && (k_ == 1 || (forgotten & BIT(i)) == 0) ->
    assert(ballot_ <= BALLOT(i));
    if
    :: (ballot_ == BALLOT(i) || mutation == NO_BALLOT_CHECK) && sent[AT(k_, i)] == 0 -> accept(i, k_, BIT(j))
    :: else
    fi
  :: else
  fi
}

// An orphan connects to a lower living rank.
inline connect(i, p) {
  neighbours[i] = neighbours[i] | BIT(p);
  send(i, p, GREETING, 0, 0, dead[i], 0, 0);
  for (instance_ : 0 .. INSTANCES - 1) {
    if
    :: mutation != NO_NEW_REPORT -> send_report(i, instance_)
    :: else
    fi
  }
}

#define IS_ORPHAN(i) (PARENT(i) == 0 && BALLOT(i) != (i))
#define LIVING_NEIGHBOUR(d, r) ((up & BIT(r)) != 0 && (neighbours[r] & BIT(d)) != 0)
#if N == 3
#define HAS_NEIGHBOUR(d) (LIVING_NEIGHBOUR(d, 0) || LIVING_NEIGHBOUR(d, 1) || LIVING_NEIGHBOUR(d, 2))
#elif N == 4
#define HAS_NEIGHBOUR(d) (LIVING_NEIGHBOUR(d, 0) || LIVING_NEIGHBOUR(d, 1) || LIVING_NEIGHBOUR(d, 2) || \
  LIVING_NEIGHBOUR(d, 3))
#else
#define HAS_NEIGHBOUR(d) (LIVING_NEIGHBOUR(d, 0) || LIVING_NEIGHBOUR(d, 1) || LIVING_NEIGHBOUR(d, 2) || \
  LIVING_NEIGHBOUR(d, 3) || LIVING_NEIGHBOUR(d, 4))
#endif
// Rank i detects the death of d: it was connected to d, or tries to connect to it, or is the root and nobody else will.
#define MAY_DETECT(i, d) ((up & BIT(d)) == 0 && (dead[i] & BIT(d)) == 0 && ((neighbours[i] & BIT(d)) != 0 || \
  (IS_ORPHAN(i) && (d) < (i)) || (BALLOT(i) == (i) && !HAS_NEIGHBOUR(d))))

#define MAY_CONNECT(i, p) (IS_ORPHAN(i) && (p) < (i) && (up & BIT(p)) != 0 && (dead[i] & BIT(p)) == 0)
#define MAY_CONTRIBUTE(i, k) (IS_MEMBER(i) && (contributed[AT(k, i)] & BIT(i)) == 0 && !RETURNED(k, i))

// A dead rank keeps nothing: so states that differ only in what it knew are one.
inline die(i) {
  deaths_left--;
  up = up & ~BIT(i);
  dead[i] = 0;
  neighbours[i] = 0;
  for (instance_ : 0 .. INSTANCES - 1) {
    at_ = AT(instance_, i);
    contributed[at_] = 0; heard[at_] = 0; heard_failed[at_] = 0;
    decided[at_] = 0; decided_failed[at_] = 0; sent[at_] = 0
  }
  for (each_ : 0 .. N - 1) {
    drain(each_, i)
  }
}

#define RUNS(i) ((up & BIT(i)) != 0)
#define CAN_ACT(i, j) (RUNS(i) && (HAS_MAIL(j, i) || MAY_DETECT(i, j) || MAY_CONNECT(i, j)))
#if INSTANCES == 2
#define MAY_CONTRIBUTE_AGAIN(i) (agreements == 2 && RETURNED(0, i) && MAY_CONTRIBUTE(i, 1))
#else
#define MAY_CONTRIBUTE_AGAIN(i) false
#endif
#define CAN_CHANGE(i) (RUNS(i) && (deaths_left > 0 || MAY_CONTRIBUTE(i, 0) || MAY_CONTRIBUTE_AGAIN(i)))
#define PAIR(i, j) :: CAN_ACT(i, j) -> self = i; peer = j
#define RANK(i) :: CAN_CHANGE(i) -> self = i; peer = i

init {
  byte self, peer;  // 0 between two steps
  // Initial values and the tree.
  d_step {
    c_code {
      members = atoi(getenv("MEMBERS"));
      if (members == 0) members = (1 << N) - 1;
      agreements = atoi(getenv("AGREEMENTS"));
      mutation = atoi(getenv("MUTATION"));
      now.deaths_left = atoi(getenv("DEATHS"));
      other_ = atoi(getenv("ARITY"));
    };
    to_ = other_;
    for (each_ : 1 .. N - 1) {
      other_ = (each_ - 1) / to_;
      neighbours[each_] = neighbours[each_] | BIT(other_);
      neighbours[other_] = neighbours[other_] | BIT(each_)
    };
    skip
  }
  // One process makes all steps, of which nothing interrupts one: so a state has no more than the variables above. A
  // loop must not be the last statement of a d_step.
step:
  atomic {
    if
    RANK(0) RANK(1) RANK(2)
    PAIR(0, 1) PAIR(0, 2) PAIR(1, 0) PAIR(1, 2) PAIR(2, 0) PAIR(2, 1)
#if N >= 4
    RANK(3)
    PAIR(0, 3) PAIR(1, 3) PAIR(2, 3) PAIR(3, 0) PAIR(3, 1) PAIR(3, 2)
#endif
#if N >= 5
    RANK(4)
    PAIR(0, 4) PAIR(1, 4) PAIR(2, 4) PAIR(3, 4) PAIR(4, 0) PAIR(4, 1) PAIR(4, 2) PAIR(4, 3)
#endif
    :: else -> goto over
    fi;
    if
    // What a rank does by itself: it contributes, and dies.
    :: d_step { self == peer && MAY_CONTRIBUTE(self, 0) -> contribute(self, 0); self = 0; peer = 0 }
#if INSTANCES == 2
    :: d_step { self == peer && MAY_CONTRIBUTE_AGAIN(self) -> contribute(self, 1); self = 0; peer = 0 }
#endif
    :: d_step { self == peer && deaths_left > 0 -> die(self); self = 0; peer = 0 }
    // What it does about another one.
    :: d_step { self != peer && HAS_MAIL(peer, self) -> deliver(peer, self); self = 0; peer = 0 }
    :: d_step { self != peer && MAY_DETECT(self, peer) -> drain(peer, self); learn(self, BIT(peer), N); self = 0; peer = 0 }
    :: d_step {
         self != peer && (dead[self] & BIT(peer)) != 0 && HAS_MAIL(peer, self) -> drain(peer, self); self = 0; peer = 0
       }
    :: d_step { self != peer && MAY_CONNECT(self, peer) -> connect(self, peer); self = 0; peer = 0 }
    fi
  };
  goto step;
over:
  // Liveness: if nothing more can happen, each living member has returned.
  assert(ENDED)
}
