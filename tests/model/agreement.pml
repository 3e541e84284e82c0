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
// Parameters, each of which -D may set:
#ifndef N
#define N 4          // ranks
#endif
#ifndef ARITY
#define ARITY 2      // children per rank in the first tree
#endif
#ifndef MEMBERS
#define MEMBERS ALL  // of the communicator: a set
#endif
#ifndef DEATHS
#define DEATHS 2     // at most
#endif
#ifndef INSTANCES
#define INSTANCES 1  // consecutive agreements of the communicator: 1 or 2
#endif
// The MUTATION_ macros each remove one rule of the protocol: a property must then fail.
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
#define IS_MEMBER(i) ((MEMBERS & BIT(i)) != 0)
#define AT(k, i) ((k) * N + (i))
#define CAPACITY 8   // messages of a connection: an assertion checks that they suffice

// A report carries a ballot, contributions, and a decision or nothing; a decision carries a ballot and a decision; a
// greeting (the first message of a new connection) and deaths carry a set of dead ranks.
mtype:message = { greeting, deaths, report, decision };
chan connection[N * N] = [CAPACITY] of { mtype:message, bit, byte, byte, byte, byte };

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
byte deaths_left = DEATHS;

// The ballot of a rank: the lowest rank that it believes to be alive, which is the coordinator.
#define BALLOT(i) LOWEST(ALL & ~dead[i])
#define PARENT(i) (neighbours[i] & (BIT(i) - 1))
#define RETURNED(k, i) (decided[AT(k, i)] != 0 || (k == 0 && (forgotten & BIT(i)) != 0))
// A dead rank and a rank that is no member need no decision.
#define SETTLED(k, i) ((up & MEMBERS & BIT(i)) == 0 || RETURNED(k, i))
#if N == 3
#define ALL_SETTLED(k) (SETTLED(k, 0) && SETTLED(k, 1) && SETTLED(k, 2))
#elif N == 4
#define ALL_SETTLED(k) (SETTLED(k, 0) && SETTLED(k, 1) && SETTLED(k, 2) && SETTLED(k, 3))
#else
#define ALL_SETTLED(k) (SETTLED(k, 0) && SETTLED(k, 1) && SETTLED(k, 2) && SETTLED(k, 3) && SETTLED(k, 4))
#endif
#define ENDED ALL_SETTLED(INSTANCES - 1)

#ifdef MUTATION_FORGETS_DECISION
#define KNOWS_DECISION(at) false
#else
#define KNOWS_DECISION(at) (decided[at] != 0)
#endif
#ifdef MUTATION_NO_ANSWER
#define ANSWERS false
#else
#define ANSWERS true
#endif

// Temporary values of one step, not part of the state.
hidden mtype:message type_;
hidden byte k_;
hidden byte ballot_, set_, value_, failed_, new_, before_, to_, at_, other_;
hidden byte each_, instance_;

inline send(source, target, type, k, ballot, set, value, failed) {
  if
  :: (up & BIT(target)) != 0 ->
    assert(nfull(connection[source * N + target]));
    connection[source * N + target]!type, k, ballot, set, value, failed
  :: else
  fi
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
    :: KNOWS_DECISION(at_) -> send(i, to_, report, k, BALLOT(i), contributed[at_], decided[at_], decided_failed[at_])
    :: else -> send(i, to_, report, k, BALLOT(i), contributed[at_], heard[at_], heard_failed[at_])
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
    assert(((value_ | failed_) & MEMBERS) == MEMBERS);  // the contribution of each member that has not failed
    assert((failed_ & up) == 0);                        // no living member has failed
    for (each_ : 0 .. N - 1) {
      if
      :: (up & MEMBERS & BIT(each_)) != 0 ->
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
    :: (neighbours[i] & ~(known) & BIT(each_)) != 0 -> send(i, each_, decision, k, BALLOT(i), 0, value_, failed_)
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
#ifdef MUTATION_DECIDES_EARLY
#define HAS_HEARD_ALL(i, at) ((contributed[at] & BIT(i)) != 0 || !IS_MEMBER(i))
#else
#define HAS_HEARD_ALL(i, at) ((MEMBERS & ~dead[i] & ~contributed[at]) == 0)
#endif
inline decide(i, k) {
  at_ = AT(k, i);
  if
  :: BALLOT(i) == i && sent[at_] == 0 && contributed[at_] != 0 && HAS_HEARD_ALL(i, at_) ->
    if
    :: KNOWS_DECISION(at_) -> value_ = decided[at_]; failed_ = decided_failed[at_]
    :: !KNOWS_DECISION(at_) && heard[at_] != 0 -> value_ = heard[at_]; failed_ = heard_failed[at_]
    :: else -> value_ = contributed[at_]; failed_ = dead[i] & MEMBERS
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
      :: (neighbours[i] & BIT(each_)) != 0 && each_ != from -> send(i, each_, deaths, 0, 0, new_, 0, 0)
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
#ifndef MUTATION_KEEPS_REPORTS
        contributed[at_] = contributed[at_] & BIT(i);
        heard[at_] = 0;
        heard_failed[at_] = 0;
#endif
        sent[at_] = 0;
#ifndef MUTATION_RELAY_KEEPS_DECISION
        if
        :: !IS_MEMBER(i) -> decided[at_] = 0; decided_failed[at_] = 0
        :: else
        fi;
#endif
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
  :: len(connection[(j) * N + i]) > 0 -> connection[(j) * N + i]?_, _, _, _, _, _
  :: else -> break
  od
}

inline contribute(i, k) {
  contributed[AT(k, i)] = contributed[AT(k, i)] | BIT(i);
  report_or_decide(i, k)
}

// Rank i takes the next message of rank j.
inline deliver(j, i) {
  connection[(j) * N + i]?type_, k_, ballot_, set_, value_, failed_;
  if
  :: type_ == greeting ->
    if
    :: (dead[i] & ~set_) != 0 -> send(i, j, deaths, 0, 0, dead[i] & ~set_, 0, 0)
    :: else
    fi;
    neighbours[i] = neighbours[i] | (BIT(j) & ~dead[i]);
    learn(i, set_, j)
  :: type_ == deaths -> learn(i, set_, j)
  :: type_ == report && (k_ == 1 || (forgotten & BIT(i)) == 0) ->
    assert(ballot_ <= BALLOT(i));  // deaths arrive before what was sent after them
    at_ = AT(k_, i);
    if
    :: ballot_ < BALLOT(i)  // its sender will hear of the death, and report again
    :: ballot_ == BALLOT(i) && sent[at_] != 0 ->
      if
      :: ANSWERS && (sent[at_] & BIT(j)) == 0 ->  // a new child
        sent[at_] = sent[at_] | BIT(j);
        send(i, j, decision, k_, ballot_, 0, decided[at_], decided_failed[at_])
      :: else
      fi
    :: else ->
      new_ = set_ & ~contributed[at_];
      contributed[at_] = contributed[at_] | set_;
#ifndef MUTATION_RELAY_KEEPS_DECISION
      assert(value_ == 0 || heard[at_] == 0 || (heard[at_] == value_ && heard_failed[at_] == failed_));
#endif
      if
      :: value_ != 0 && heard[at_] == 0 -> heard[at_] = value_; heard_failed[at_] = failed_; new_ = ALL
      :: else
      fi;
      if
      :: new_ != 0 -> report_or_decide(i, k_)
      :: else
      fi
    fi
  :: type_ == decision && (k_ == 1 || (forgotten & BIT(i)) == 0) ->
    assert(ballot_ <= BALLOT(i));
    if
#ifdef MUTATION_NO_BALLOT_CHECK
    :: sent[AT(k_, i)] == 0 -> accept(i, k_, BIT(j))
#else
    :: ballot_ == BALLOT(i) && sent[AT(k_, i)] == 0 -> accept(i, k_, BIT(j))
#endif
    :: else
    fi
  :: else
  fi
}

// An orphan connects to a lower living rank.
inline connect(i, p) {
  neighbours[i] = neighbours[i] | BIT(p);
  send(i, p, greeting, 0, 0, dead[i], 0, 0);
#ifndef MUTATION_NO_NEW_REPORT
  for (instance_ : 0 .. INSTANCES - 1) {
    send_report(i, instance_)
  }
#endif
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
// What rank i does about rank j, in steps that nothing interrupts. A loop must not be the last statement of a d_step.
proctype Peer(byte i, j) {
end:
  do
  :: d_step { RUNS(i) && nempty(connection[j * N + i]) -> deliver(j, i); skip }
  :: d_step { RUNS(i) && MAY_DETECT(i, j) -> drain(j, i); learn(i, BIT(j), N); skip }
  :: d_step { RUNS(i) && (dead[i] & BIT(j)) != 0 && nempty(connection[j * N + i]) -> drain(j, i); skip }
  :: d_step { RUNS(i) && MAY_CONNECT(i, j) -> connect(i, j); skip }
  od
}

// What a rank does by itself: it contributes, and dies.
proctype Rank(byte i) {
end:
  do
  :: d_step { RUNS(i) && MAY_CONTRIBUTE(i, 0) -> contribute(i, 0); skip }
#if INSTANCES == 2
  :: d_step { RUNS(i) && RETURNED(0, i) && MAY_CONTRIBUTE(i, 1) -> contribute(i, 1); skip }
#endif
  :: d_step { RUNS(i) && deaths_left > 0 -> die(i); skip }
  od
}

init {
  d_step {
    for (each_ : 1 .. N - 1) {
      other_ = (each_ - 1) / ARITY;
      neighbours[each_] = neighbours[each_] | BIT(other_);
      neighbours[other_] = neighbours[other_] | BIT(each_)
    };
    skip
  }
  atomic {
    for (each_ : 0 .. N - 1) {
      run Rank(each_);
      for (other_ : 0 .. N - 1) {
        if
        :: each_ != other_ -> run Peer(each_, other_)
        :: else
        fi
      }
    }
  }
  // Liveness: if nothing more can happen, each living member has returned.
  timeout -> assert(ENDED)
}
