/* Joins are a log too: who settles a step appends a row to the join's tally and leaves a probe; the claim that takes
   the probe looks whether the join is complete, and makes its join.wait message ready. Beside
   sql/postgres/joins/_count.sql, _fold.sql, _nudge.sql, wait.sql and queue/_promote.sql.

   Nobody locks the join for that. Whatever makes a join complete, a step or its join_wait, leaves a probe in the same
   transaction. So whoever takes a probe that is committed, and looks after that, sees what its writer did and all that
   was committed before: the last probe finds the join complete. A probe of the claim's own transaction proves nothing,
   for of two that are open neither sees the other's step; it goes back, to be taken when it is committed.
   READ COMMITTED: each statement is a step here, and sees what is committed by then, and its own transaction's doing.

   Must hold: whenever the message has become ready, the join is complete; when everybody has ended and no probe is
   left, the message is ready.

   Planted, to be found:
     FAULT_DROP_OWN         a claim uses up its own transaction's probe as any other
     FAULT_OWN_COMPLETE     and does so if the join is complete, though its join.wait message is not to be seen yet
     FAULT_LOOK_FIRST       a claim looks at the join before it takes the probe
     FAULT_PROBE_FIRST      a step leaves its probe in a transaction before the one of its tally
     FAULT_TALLY_ALONE      a step leaves no probe
     FAULT_NO_NUDGE         join_wait leaves no probe
     FAULT_NOT_AGAIN        a claim that finds the message with somebody who has asked too early leaves it to him
     FAULT_ANY_PROBE        the message is made ready by any probe, whether the join is complete or not
   Must be possible, so an assertion denies it, to be found:
     REACH_READY            a claim makes the message ready
     REACH_OWN              and does so by its own transaction's step
     REACH_AGAIN            a claim has the join looked at again, as somebody has the message
     REACH_BACK             a claim puts back its own transaction's probe */

#define S0 0         /* sessions that settle a step each, and may claim in the same transaction */
#define S1 1
#define WAITER 2     /* one that calls join_wait, and may claim then */
#define C0 3         /* sessions that only claim */
#define C1 4
#define NOBODY 9

mtype = {
    ABSENT,
    ENTERED,         /* by an open join_wait */
    PARKED,          /* in `scheduled` */
    MOVED,           /* by an open claim; still parked to the others */
    LEASED,          /* to somebody who asks join_resolve too early, perhaps */
    READY            /* or resolved */
};

mtype message = ABSENT;
byte moved_by = NOBODY;
bit open_step[2], step[2];   /* tally rows: of an open transaction, committed */
byte probes;                 /* committed */

#define sees_step(n, me) (step[n] || (open_step[n] && n == me))
#define sees_complete(me) (sees_step(S0, me) && sees_step(S1, me))
#define sees_wait(me) (message != ABSENT && (message != ENTERED || me == WAITER))

inline end_transaction(me, committed) {
    if
    :: me <= S1 -> step[me] = step[me] || (open_step[me] && committed); open_step[me] = 0
    :: else
    fi;
    if
    :: message == ENTERED && me == WAITER -> message = (committed -> PARKED : ABSENT)
    :: message == MOVED && moved_by == me ->
        message = (committed -> READY : (me == WAITER && own_wait -> ABSENT : PARKED));
        moved_by = NOBODY;
        assert(message != READY || (step[S0] && step[S1]))
    :: else
    fi;
    probes = probes + (committed -> own_probes + new_probes : took);
    own_probes = 0; new_probes = 0; took = 0; own_wait = 0
}

/* claim: _promote takes probes, _join_fold looks. */
inline claim(me) {
#ifdef FAULT_LOOK_FIRST
    d_step { is_complete = sees_complete(me); is_known = sees_wait(me) };
#endif
    atomic {
        if
        :: probes > 0 -> probes--; took++
        :: own_probes > 0 -> own_probes--; is_own = 1
        :: probes > 0 && own_probes > 0 -> probes--; took++; own_probes--; is_own = 1
        :: probes == 0 && own_probes == 0  /* others were quicker */
        fi
    };
    /* A new statement. */
#ifndef FAULT_LOOK_FIRST
    d_step { is_complete = sees_complete(me); is_known = sees_wait(me) };
#endif
#ifdef FAULT_ANY_PROBE
    is_complete = 1;
#endif
    d_step {
#ifdef REACH_BACK
        assert(!(is_own && !is_complete));
#endif
#ifdef FAULT_OWN_COMPLETE
        own_probes = own_probes + (is_own && !is_complete)
#else
#ifndef FAULT_DROP_OWN
        own_probes = own_probes + (is_own && !(is_complete && is_known))
#else
        skip
#endif
#endif
    };
    if
    :: is_complete && is_known ->
        d_step {
            is_moved = message == PARKED || (message == ENTERED && me == WAITER);
            own_wait = own_wait || (is_moved && message == ENTERED);
            moved_by = (is_moved -> me : moved_by);
            message = (is_moved -> MOVED : message)
#ifdef REACH_READY
            assert(!is_moved);
#endif
#ifdef REACH_OWN
            assert(!(is_moved && me <= S1));
#endif
        };
#ifndef FAULT_NOT_AGAIN
        /* Somebody is just handling it, or moving it: look again a little later. */
        d_step {
            is_moved = !is_moved && (message == LEASED || message == PARKED || (message == MOVED && moved_by != me));
#ifdef REACH_AGAIN
            assert(!is_moved);
#endif
            new_probes = new_probes + is_moved
        }
#endif
    :: else
    fi;
    d_step { is_complete = 0; is_known = 0; is_own = 0; is_moved = 0 }
}

inline maybe_claim(me) {
    if
    :: claim(me)
    :: true
    fi
}

/* ack of one step: _join_count, and in settle a claim with it. Until it is done. */
proctype Settler(byte me) {
    byte own_probes, new_probes, took;
    bit is_complete, is_known, is_own, is_moved, own_wait;

    do
    :: step[me] -> break
    :: else ->
#ifdef FAULT_PROBE_FIRST
        probes++;
        open_step[me] = 1;
#else
        d_step {
            open_step[me] = 1;
#ifndef FAULT_TALLY_ALONE
            own_probes++
#endif
        };
#endif
        maybe_claim(me);
        if
        :: d_step { end_transaction(me, 1) }
        :: d_step { end_transaction(me, 0) }
        fi
    od
}

/* join_wait, until it is done. */
proctype Waiter(byte me) {
    byte own_probes, new_probes, took;
    bit is_complete, is_known, is_own, is_moved, own_wait;

    do
    :: message != ABSENT -> break
    :: else ->
        message = ENTERED;
#ifndef FAULT_NO_NUDGE
        own_probes++;
#endif
        maybe_claim(me);
        if
        :: d_step { end_transaction(me, 1) }
        :: d_step { end_transaction(me, 0) }
        fi
    od
}

proctype Claimer(byte me) {
    byte own_probes, new_probes, took;
    bit is_complete, is_known, is_own, is_moved, own_wait;

end:
    do
    :: probes > 0 ->
        maybe_claim(me);
        if
        :: d_step { end_transaction(me, 1) }
        :: d_step { end_transaction(me, 0) }
        fi
    od
}

/* Handles the message before its time: join_resolve says Pending, or the join is complete by then. */
proctype Early() {
    bit is_complete;

end: /* it need not be there */
    atomic { message == PARKED -> message = LEASED };
    is_complete = sees_complete(NOBODY);
    message = (is_complete -> READY : PARKED)
}

init {
    atomic {
        run Settler(S0);
        run Settler(S1);
        run Waiter(WAITER);
        run Claimer(C0);
        run Claimer(C1);
        if
        :: run Early()
        :: true
        fi
    };
    timeout -> assert(message == READY)
}
