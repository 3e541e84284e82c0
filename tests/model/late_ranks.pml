// The late ranks of survivor mode (src/communicator/survivor_mode.h, late_ranks.h): how they are left out, and how they
// take part again: a model for spin.
//
// N ranks make CALLS collectives. After each the members agree. An agreement is named by the phase, the excluded ranks
// and a number; agreement.pml is about how it is made, so here it is one step. It has a result when all members that
// live have contributed. Or time is over: then its result is that the missing ones are late. A rank may also give up
// before it has the result that the others get. Together these happen at most TIMEOUTS times, if the ranks wait for one
// that would come; a rank that is slow or stopped is one whose next step comes late. Notices arrive at each rank at any
// time, in any order, or a later one of the same rank instead of an earlier one. DEATHS ranks die.
//
// Properties:
// - No two groups complete the same collective, unless all ranks of the first are dead.
// - Every rank ends: with all collectives, or because others have left while it was late. (No state is without a next
//   step.)
#define N 3
#ifndef CALLS
#define CALLS 2
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 2
#endif
#ifndef DEATHS
#define DEATHS 0    // 0 or 1
#endif
#ifndef TOGETHER
#define TOGETHER 0  // 1: a rank hears all notices that are on their way at once. A smaller search
#endif
#ifndef MUTATION
#define MUTATION 0
#endif
// Each lacks one rule of the protocol, and must fail.
#define ANY_OF_ALL_LATE 1   // if all were late, a part of them begins a phase
#define TELLS_ONCE 2        // a rank that waits does not tell again that it is back, if it hears of others' phases

#ifndef PHASES
#define PHASES 6    // more are not searched: 4 or 6
#endif
#define ROUNDS 4  // at least CALLS + 1: agreements with the same phase and excluded ranks
#define ALL ((1 << N) - 1)
#define BIT(r) (1 << (r))
#define LOWEST(set) ((set) & 1 -> 0 : ((set) & 2 -> 1 : ((set) & 4 -> 2 : 3)))
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define NAMED(phase, excluded, number) (((phase) * 8 + (excluded)) * ROUNDS + (number))

#define OPEN 0
#define AGREED 1
#define LATE 2

typedef Agreement {
  byte given;    // ranks that have contributed
  byte result;
  byte late;     // of LATE
  byte offerer;  // the lowest rank with an offer, plus 1; 0: none
  byte phase;    // of the offer
  byte invited;
};
Agreement agreements[192];  // PHASES * 2^3 * ROUNDS

// Invitations: of ranks on time, then of ranks that were all late.
#define SLOT(phase, all_late) ((all_late) * PHASES + (phase))
typedef Invitation {
  bit told;
  byte members;
  byte calls;
};
Invitation invitations[12];  // 2 * PHASES

byte returned[N];        // the phase in which the rank was left out, plus 1, as it has told last; 0: not yet
byte returned_calls[N];
byte dead, left, outs;
byte phases[N];          // of the ranks
byte timeouts;
byte contributors[CALLS], completers[CALLS];

#define LIVING (ALL & ~dead)

// What a rank knows of late ranks.
typedef Known {
  byte back;              // ranks that are back
  byte back_phase[N];     // as they have told last
  byte invited_phase[N];
  byte last;              // the phase of the last invitation; 0: none
  bit last_all_late;
  byte later;             // the latest phase of ranks on time, or with this rank
  unsigned heard : 12;    // slots of invitations
};
Known known[N];

inline hear_return(own_, other_) {
  if
  :: returned[other_] - 1 < known[own_].invited_phase[other_] -> skip
  :: else ->
     known[own_].back = known[own_].back | BIT(other_);
     known[own_].back_phase[other_] = returned[other_]
  fi
}

inline hear_invitation(own_, place_) {
  known[own_].heard = known[own_].heard | (1 << (place_));
  heard_phase = (place_) % PHASES;
  y = 0;
  do
  :: y < N ->
     if
     :: invitations[place_].members & BIT(y) ->
        known[own_].invited_phase[y] = MAX(known[own_].invited_phase[y], heard_phase);
        if
        :: known[own_].back_phase[y] <= heard_phase -> known[own_].back = known[own_].back & ~BIT(y)
        :: else -> skip
        fi
     :: else -> skip
     fi;
     y++
  :: else -> break
  od;
  if
  :: heard_phase > known[own_].last ->
     known[own_].last = heard_phase; known[own_].last_all_late = ((place_) >= PHASES)
  :: else -> skip
  fi;
  if
  :: (place_) < PHASES || (invitations[place_].members & BIT(own_)) ->
     known[own_].later = MAX(known[own_].later, heard_phase)
  :: else -> skip
  fi;
  heard_phase = 0;
  y = 0
}

inline next_phase(own_) {
  next = MAX(phase, known[own_].last);
  y = 0;
  do
  :: y < N ->
     if
     :: known[own_].back & BIT(y) -> next = MAX(next, known[own_].back_phase[y] - 1)
     :: else -> skip
     fi;
     y++
  :: else -> break
  od;
  y = 0;
  next++
}

#define HAS_NEWS(r, x) (x != r && returned[x] > known[r].back_phase[x])
#define HAS_INVITATION(r, slot) (invitations[slot].told && !(known[r].heard & (1 << (slot))))

// One notice that is on its way to rank r arrives.
#define HEARS_RETURN(x) :: d_step { HAS_NEWS(r, x) -> hear_return(r, x) }
#define HEARS_INVITATION(p) \
  :: d_step { HAS_INVITATION(r, SLOT(p, 0)) -> hear_invitation(r, SLOT(p, 0)) } \
  :: d_step { HAS_INVITATION(r, SLOT(p, 1)) -> hear_invitation(r, SLOT(p, 1)) }
#define HEARS_RETURNS HEARS_RETURN(0) HEARS_RETURN(1) HEARS_RETURN(2)
#if TOGETHER
// All notices that are on their way arrive together.
inline hear_all(own_) {
  x = 0;
  do
  :: x < N ->
     if
     :: HAS_NEWS(own_, x) -> hear_return(own_, x)
     :: else -> skip
     fi;
     x++
  :: else -> break
  od;
  x = 0;
  slot = 1;
  do
  :: slot < 2 * PHASES ->
     if
     :: HAS_INVITATION(own_, slot) -> hear_invitation(own_, slot)
     :: else -> skip
     fi;
     slot++
  :: else -> break
  od;
  slot = 0
}
#define NEWS(x) HAS_NEWS(r, x)
#define TOLD(p) p < PHASES && (HAS_INVITATION(r, SLOT(p, 0)) || HAS_INVITATION(r, SLOT(p, 1)))
#define HEARS \
  :: d_step { \
       NEWS(0) || NEWS(1) || NEWS(2) || TOLD(1) || TOLD(2) || TOLD(3) || TOLD(4) || TOLD(5) -> hear_all(r) \
     }
#else
#if PHASES == 4
#define HEARS HEARS_RETURNS HEARS_INVITATION(1) HEARS_INVITATION(2) HEARS_INVITATION(3)
#else
#define HEARS \
  HEARS_RETURNS \
  HEARS_INVITATION(1) HEARS_INVITATION(2) HEARS_INVITATION(3) HEARS_INVITATION(4) HEARS_INVITATION(5)
#endif
#endif

// A rank for which the others wait in vain: no matter how long they wait, it does not contribute.
#define COMES_NOT(m) (((LIVING & ~excluded & ~agreements[at].given) & BIT(m)) != 0 && \
  (phases[m] > phase || ((outs & BIT(m)) != 0 && (!begins || phases[m] >= phase || !invitations[SLOT(phase, 0)].told))))

// Each rank that was on time, if its phase begins without one that was invited, or without itself.
#define TELLS_AGAIN invitations[SLOT(phase, 0)].told = invitations[SLOT(phase, 0)].told || first_members != 0

proctype Rank(byte r) {
  byte phase, excluded, number, calls, next, slot, x, y, heard_phase, at, told_phase, first_members;
  byte late;                  // excluded ranks that are late
  bit begins, all_late, out;  // begins: the next agreement is the first one of the phase
  {
    do
    :: !out && !begins && calls == CALLS -> break
    :: phase >= PHASES - 1 -> break  // more is not searched
    :: !out && (begins || calls < CALLS) && phase < PHASES - 1 ->
       d_step {
         at = NAMED(phase, excluded, number);
         agreements[at].given = agreements[at].given | BIT(r);
         if
         :: agreements[at].result == OPEN && !begins && (late & known[r].back & LIVING & ~left) != 0 &&
            (agreements[at].offerer == 0 || r + 1 < agreements[at].offerer) ->
            next_phase(r);
            agreements[at].offerer = r + 1;
            agreements[at].phase = next;
            agreements[at].invited = late & known[r].back & LIVING & ~left;
            next = 0
         :: else -> skip
         fi
       }
       do
       :: agreements[at].result != OPEN -> break
       :: d_step {
            agreements[at].result == OPEN && (LIVING & ~excluded & ~agreements[at].given) == 0 ->
              agreements[at].result = AGREED
          }
       :: d_step {
            agreements[at].result == OPEN && !(begins && all_late) &&
            (LIVING & ~excluded & ~agreements[at].given) != 0 &&
            (timeouts < TIMEOUTS || COMES_NOT(0) || COMES_NOT(1) || COMES_NOT(2)) ->
              if
              :: COMES_NOT(0) || COMES_NOT(1) || COMES_NOT(2) -> skip
              :: else -> timeouts++
              fi;
              agreements[at].result = LATE;
              agreements[at].late = LIVING & ~excluded & ~agreements[at].given
          }
       :: d_step { timeouts < TIMEOUTS -> timeouts++; out = 1; outs = outs | BIT(r) } -> break
          // A member of which this rank has a wrong idea does not come.
       :: d_step {
            begins && all_late && agreements[at].result == OPEN &&
            (LIVING & ~excluded & ~agreements[at].given) != 0 ->
#if MUTATION == ANY_OF_ALL_LATE
              agreements[at].result = LATE;
              agreements[at].late = LIVING & ~excluded & ~agreements[at].given
#else
              out = 1;
              outs = outs | BIT(r)
#endif
          } -> break
       :: !(begins && all_late) && agreements[at].result == OPEN &&
          (LIVING & ~excluded & ~agreements[at].given) != 0 &&
          (LIVING & ~excluded & ~agreements[at].given & ~left) == 0 -> goto ended  // they have left: an error
       HEARS
       od;
       skip;
       d_step {
         if
         :: out -> TELLS_AGAIN
         :: !out && agreements[at].result == LATE ->
            if
            :: agreements[at].late & BIT(r) -> out = 1; outs = outs | BIT(r); TELLS_AGAIN
            :: !(agreements[at].late & BIT(r)) && known[r].later > phase ->
               out = 1;
               outs = outs | BIT(r);
               TELLS_AGAIN
            :: else ->
               excluded = excluded | agreements[at].late;
               late = late | agreements[at].late;
               number = 0
            fi
         :: !out && agreements[at].result == AGREED ->
            number++;
            if
            :: begins ->
               begins = 0;
               if
               :: (late & first_members) != 0 -> TELLS_AGAIN
               :: else -> skip
               fi;
               first_members = 0
            :: else ->
               assert(contributors[calls] == 0 || contributors[calls] == (ALL & ~excluded) ||
                      (completers[calls] & LIVING) == 0);
               if
               :: contributors[calls] != (ALL & ~excluded) -> completers[calls] = 0
               :: else -> skip
               fi;
               contributors[calls] = ALL & ~excluded;
               completers[calls] = completers[calls] | BIT(r);
               calls++;
               if
               :: agreements[at].offerer != 0 ->
                  phase = agreements[at].phase;
                  phases[r] = phase;
                  first_members = (ALL & ~excluded) | agreements[at].invited;
                  told_phase = (LOWEST(LIVING & ~excluded) == r -> 1 : 0);
                  excluded = ALL & ~first_members;
                  late = late & ~agreements[at].invited;
                  number = 0;
                  begins = 1;
                  all_late = 0;
                  slot = SLOT(phase, 0);
                  invitations[slot].members = first_members;
                  invitations[slot].calls = calls;
                  hear_invitation(r, slot)
               :: else -> skip
               fi
            fi
         fi;
         at = 0;
         slot = 0
       }
       // It may die before it tells.
       if
       :: told_phase != 0 -> d_step { invitations[SLOT(phase, 0)].told = 1; told_phase = 0 }
       :: else -> skip
       fi
    :: out && phase < PHASES - 1 ->
       d_step {
         begins = 0;
         first_members = 0;
         late = 0;
         excluded = 0;
         number = 0;
         returned[r] = phase + 1;
         returned_calls[r] = calls;
         hear_return(r, r)
       }
       do
       :: d_step {
            known[r].last > phase &&
            (invitations[SLOT(known[r].last, known[r].last_all_late)].members & BIT(r)) ->
              slot = SLOT(known[r].last, known[r].last_all_late);
              phase = known[r].last;
              calls = MAX(calls, invitations[slot].calls);
              excluded = ALL & ~invitations[slot].members;
              late = excluded & LIVING;
              begins = 1;
              all_late = known[r].last_all_late;
              out = 0;
              outs = outs & ~BIT(r);
              phases[r] = phase;
              slot = 0
          } -> break
#if MUTATION != TELLS_ONCE
          // The others may believe that it knows an earlier one, which has named it.
       :: d_step {
            known[r].last > phase &&
            !(invitations[SLOT(known[r].last, known[r].last_all_late)].members & BIT(r)) ->
              phase = known[r].last;
              phases[r] = phase;
              returned[r] = phase + 1;
              hear_return(r, r)
          }
#endif
       :: (LIVING & ~left & ~known[r].back) == 0 && (LIVING & left) != 0 -> goto ended  // an error: they have left
       :: d_step {
            (LIVING & ~known[r].back) == 0 && (LIVING & left) == 0 && LOWEST(LIVING) == r &&
            known[r].last <= phase ->
              next_phase(r);
              slot = SLOT(next, 1);
              invitations[slot].told = 1;
              invitations[slot].members = LIVING;
              y = 0;
              do
              :: y < N ->
                 if
                 :: LIVING & BIT(y) -> invitations[slot].calls = MAX(invitations[slot].calls, returned_calls[y])
                 :: else -> skip
                 fi;
                 y++
              :: else -> break
              od;
              y = 0;
              hear_invitation(r, slot);
              slot = 0;
              next = 0
          }
       HEARS
       od;
       skip
    od;
ended:
    left = left | BIT(r)
  } unless { dead & BIT(r) }
}

#if DEATHS > 0
proctype Death() {
  if
  :: true -> d_step { dead = dead | BIT(0) }
  :: true -> d_step { dead = dead | BIT(1) }
  :: true -> d_step { dead = dead | BIT(2) }
  :: true -> skip
  fi
}
#endif

init {
  atomic {
    byte i = 0;
    do
    :: i < N -> run Rank(i); i++
    :: else -> break
    od;
#if DEATHS > 0
    run Death()
#endif
  }
}
