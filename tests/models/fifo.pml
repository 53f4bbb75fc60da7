/* FIFO groups without waiting: one group, producers that add to it, workers that claim and settle, a cleanup. Beside
   sql/postgres/queue/_admit.sql, _claim_groups.sql, _surplus.sql, _regroup.sql, _probe.sql, _lock_groups.sql and
   _end_groups.sql.

   A group has one ticket however long it is. A ticket too many is dropped by the claim that meets it; one too few
   would lose messages. A producer that gets a key share lock on the group's row, and sees under it that the group is
   held or others wait, leaves the ticket to whoever looks after these; any other brings one. A settlement that finds no
   member is sure of that only under a lock that no producer's key share allows; who cannot have it has the group probed
   later. A ticket of a group that is held is one too many, unless the holder's settlement has decided already and is
   only not committed yet: then a key share lock cannot be had.

   READ COMMITTED: each statement has a snapshot of its own, so each is a step here, and what a transaction does shows
   in the others' snapshots once it has committed. A statement that looks for the row and locks it, or enters it, is
   one step too: of a version that has gone since the snapshot no lock can be had, and one that has come since is
   passed over as if the step had been before. (Who would have to wait to enter it gives up after a millisecond.) Where
   it also looks at members and leases, that look is a step before.

   Must hold: at most one worker holds messages of the group, whose row is there meanwhile; of what waits when a claim
   has locked the group, none is passed over for a later one; when everybody has ended, no message waits.

   Planted, to be found:
     FAULT_NO_SHARE         a producer that sees the group looked after brings no ticket, whether it got the lock or not
     FAULT_LOOK_ONCE        a producer does not look again under the lock
     FAULT_TRUST_LEASE      a claim drops the ticket of a group that is held, which may have been settled just now
     FAULT_TRUST_VIEW       a settlement that sees no member ends there, without the lock
     FAULT_KEY_SHARE        the strong lock is given although a producer holds a key share
     FAULT_OLD_VIEW         a settlement puts out no ticket for members that came between its first look and its lock
     FAULT_NO_PROBE         a settlement that does not get the lock leaves no probe
     FAULT_DROP_TICKET      a claim that does not get the row drops the ticket although there may be members
     FAULT_STALE_CLAIM      a claim goes by what it saw before it had the row's lock
     FAULT_END_SEEN         the row is removed after what was seen before it was locked
   Another search, with one producer less, so that it stays small:
     WITH_CLEANUP           rows are removed, messages are given back; and with it FAULT_END_SEEN and REACH_ROW_ENDS
   Must be possible, so an assertion denies it, to be found:
     REACH_ROW_ENDS         the row goes
     REACH_SURPLUS          a claim drops a ticket too many
     REACH_KEY_SHARE        a message is added without a ticket */

#define MESSAGES 3   /* in the order of their ids: one that is held, and one of each producer */
#define P1 1
#define P2 2
#define W0 3
#define W1 4
#define CLEANUP 5
#define SESSIONS 6
#define NOBODY 9

mtype = {
    NOT_YET,         /* or not committed */
    WAITS,           /* member */
    TAKEN,           /* by an open claim: leased to it, still a member to the others */
    HELD,            /* leased */
    SETTLED,         /* by an open settlement: over to it, still leased to the others */
    RETURNED,        /* by an open settlement: member again to it, still leased to the others */
    OVER,
    /* the group's row */
    ABSENT,
    ENTERED,         /* by an open claim */
    THERE,
    DELETED          /* by an open cleanup */
};

mtype message[MESSAGES] = NOT_YET;
byte owner[MESSAGES] = NOBODY;
bit was_returned;            /* one of them once */
mtype row = ABSENT;
byte row_by = NOBODY;        /* whose transaction has entered it */
byte lock_by = NOBODY;       /* FOR NO KEY UPDATE, or if it is strong FOR UPDATE */
bit lock_is_strong;
bit key_share[SESSIONS];     /* FOR KEY SHARE */
byte tickets, probes;        /* committed; a probe is a ticket in `scheduled` */

/* What the next statement of a session sees. */
#define sees_member(n, me) (message[n] == WAITS || (message[n] == TAKEN && owner[n] != me) \
                            || (message[n] == RETURNED && owner[n] == me))
#define sees_lease(n, me) (message[n] == HELD || (message[n] == TAKEN && owner[n] == me) \
                           || ((message[n] == SETTLED || message[n] == RETURNED) && owner[n] != me))
#define head(me) (sees_member(0, me) -> 0 : (sees_member(P1, me) -> P1 : (sees_member(P2, me) -> P2 : NOBODY)))
#define sees_members(me) (head(me) != NOBODY)
#define sees_leases(me) (sees_lease(0, me) || sees_lease(P1, me) || sees_lease(P2, me))
#define sees_row(me) (row == THERE || (row == ENTERED && row_by == me) || (row == DELETED && me != CLEANUP))
/* Which locks it would get. */
#define owns_row(me) (row == ENTERED && row_by == me)
#define can_lock(me) (owns_row(me) || (row == THERE && (lock_by == NOBODY || lock_by == me)))
#define can_share(me) (owns_row(me) || (row == THERE && (!lock_is_strong || lock_by == me)))
#ifdef FAULT_KEY_SHARE
#define can_lock_strongly(me) can_lock(me)
#else
#define can_lock_strongly(me) (can_lock(me) && !key_share[P1] && !key_share[P2] \
                               && !(key_share[W0] && me != W0) && !(key_share[W1] && me != W1))
#endif

#define is_held_by(n, me) (message[n] == HELD && owner[n] == me)
#define holds_one(me) (is_held_by(0, me) || is_held_by(P1, me) || is_held_by(P2, me))
#define is_not_anothers(n, me) (owner[n] == NOBODY || owner[n] == me)

inline end_transaction(me, committed) {
    for (n : 0 .. MESSAGES - 1) {
        if
        :: owner[n] == me && message[n] == TAKEN ->
            message[n] = (committed -> HELD : WAITS);
            owner[n] = (committed -> me : NOBODY)
        :: owner[n] == me && (message[n] == SETTLED || message[n] == RETURNED) ->
            message[n] = (!committed -> HELD : (message[n] == SETTLED -> OVER : WAITS));
            owner[n] = (!committed -> me : NOBODY)
        :: else
        fi
    };
    n = 0;
    if
    :: row_by == me && row == ENTERED -> row = (committed -> THERE : ABSENT)
    :: else
    fi;
    assert(row != ABSENT || !(message[0] == HELD || message[P1] == HELD || message[P2] == HELD));
    row_by = (row_by == me -> NOBODY : row_by);
    lock_is_strong = lock_is_strong && lock_by != me;
    lock_by = (lock_by == me -> NOBODY : lock_by);
    key_share[me] = 0;
    tickets = tickets + (committed -> new_tickets : took_tickets);
    probes = probes + (committed -> new_probes : took_probes);
    new_tickets = 0; new_probes = 0; took_tickets = 0; took_probes = 0
}

/* A producer's own member does not count: nobody else sees it yet. */
#define is_looked_after(me) (sees_leases(me) || sees_members(me))

/* _admit: may be under an older snapshot, where the row proves nothing and is not asked for. */
proctype Producer(byte me) {
    bit known;

    if
    :: known = sees_row(me) && is_looked_after(me);
#ifndef FAULT_NO_SHARE
        d_step { known = known && can_share(me); key_share[me] = known };
#endif
#ifndef FAULT_LOOK_ONCE
        known = known && is_looked_after(me)
#endif
    :: true
    fi;
    atomic {
#ifdef REACH_KEY_SHARE
        assert(!known);
#endif
        if
        :: message[me] = WAITS; tickets = tickets + !known
        :: message[me] = OVER
        fi;
        key_share[me] = 0
    }
}

/* _surplus: leaves it in is_held whether this ticket or probe is not needed. */
inline surplus(me) {
    is_held = sees_leases(me);
#ifndef FAULT_TRUST_LEASE
    if
    :: is_held ->
        d_step { is_sure = can_share(me); key_share[me] = key_share[me] || is_sure };
        d_step { new_probes = new_probes + !(is_sure && sees_leases(me)); is_sure = 0 }
    :: else
    fi;
#endif
#ifdef REACH_SURPLUS
    assert(!is_held);
#endif
}

/* _regroup: here all are of one topic and priority, so it does not matter whether another comes before the head. */
inline regroup(me) {
    d_step {
        is_unsure = !sees_leases(me) && !sees_members(me);
        new_tickets = new_tickets + (!sees_leases(me) && sees_members(me))
    };
#ifdef FAULT_TRUST_VIEW
    is_unsure = 0;
#endif
    if
    :: is_unsure ->
        /* Nobody can be adding a member under this lock without a ticket; what was added before it shows now. */
        d_step {
            is_locked = can_lock_strongly(me);
            lock_by = (is_locked && row == THERE -> me : lock_by);
            lock_is_strong = lock_is_strong || (is_locked && row == THERE)
        };
        /* Of a group without a row every producer puts out a ticket itself. */
#ifndef FAULT_OLD_VIEW
        d_step { new_probes = new_probes + ((is_locked || !sees_row(me)) && sees_members(me)) };
#endif
#ifndef FAULT_NO_PROBE
        d_step { new_probes = new_probes + (!is_locked && sees_row(me)) };
#endif
        d_step { is_locked = 0; is_unsure = 0 }
    :: else
    fi
}

/* _claim_groups, with a ticket of a group that needs it */
inline claim_group(me) {
#ifdef FAULT_STALE_CLAIM
    d_step { stale_free = !sees_leases(me); stale_head = head(me) };
#endif
    d_step {
        is_locked = can_lock(me);
        lock_by = (is_locked && row == THERE -> me : lock_by);
        first = head(NOBODY)
    };
    if
    :: is_locked
    :: else ->
        /* Without a row and a member it has ended: whoever is just adding to it brings a ticket. */
        is_unsure = sees_members(me) || sees_row(me);
        if
        :: is_unsure ->
            d_step {
                is_locked = row == ABSENT && sees_members(me);
                row_by = (is_locked -> me : row_by);
                row = (is_locked -> ENTERED : row);
                first = head(NOBODY);
#ifndef FAULT_DROP_TICKET
                new_probes = new_probes + !is_locked;
#endif
                is_unsure = 0
            }
        :: else
        fi
    fi;
    if
    :: is_locked ->
        /* Under the lock it is seen who holds it; that one puts out the next ticket. */
        is_free = !sees_leases(me);
#ifdef FAULT_STALE_CLAIM
        is_free = stale_free;
#endif
        if
        :: is_free ->
            if
            :: share = 1
            :: share = 2
            fi;
            d_step {
                n = head(me);
#ifdef FAULT_STALE_CLAIM
                n = (stale_head < MESSAGES && sees_member(stale_head, me) -> stale_head : NOBODY);
#endif
                assert(n <= first);
                is_free = n == NOBODY;
                do
                :: share > 0 && n != NOBODY ->
                    /* What this transaction has just given back is leased to the others all along. */
                    message[n] = (message[n] == RETURNED -> HELD : TAKEN);
                    owner[n] = me;
                    n = head(me);
                    share--
                :: else -> break
                od;
                assert(is_not_anothers(0, me) && is_not_anothers(P1, me) && is_not_anothers(P2, me));
                share = 0; n = 0; is_locked = 0
            };
            if
            :: is_free -> regroup(me)
            :: else
            fi
        :: else
        fi
    :: else
    fi;
    d_step { is_locked = 0; is_free = 0; first = 0 }
}

/* claim: a probe is regrouped by _promote, a ticket becomes messages, also one of its own. */
inline claim(me) {
    if
    :: d_step { probes > 0 -> probes--; took_probes++ };
        surplus(me);
        if
        :: !is_held -> regroup(me)
        :: else -> is_held = 0
        fi
    :: true
    fi;
    if
    :: atomic {
            if
            :: tickets > 0 -> tickets--; took_tickets++
            :: new_tickets > 0 -> new_tickets--
            fi
        };
        surplus(me);
        if
        :: !is_held -> claim_group(me)
        :: else -> is_held = 0
        fi
    :: true
    fi
}

/* ack, or abandon: the first message that it holds. _lock_groups waits. */
inline settle(me) {
    if
    :: sees_row(me) -> d_step { can_lock(me) || !sees_row(me) -> lock_by = (row == THERE -> me : lock_by) }
    :: else
    fi;
    atomic {
        n = (is_held_by(0, me) -> 0 : (is_held_by(P1, me) -> P1 : P2));
        if
        :: message[n] = SETTLED
#ifdef WITH_CLEANUP
        :: !was_returned -> message[n] = RETURNED; was_returned = 1
#endif
        fi;
        n = 0
    };
    regroup(me)
}

proctype Worker(byte me) {
    byte new_tickets, new_probes, took_tickets, took_probes, n, first, share;
    bit is_held, is_sure, is_unsure, is_locked, is_free, has_failed;  /* rolled back once */
#ifdef FAULT_STALE_CLAIM
    byte stale_head;
    bit stale_free;
#endif

end:
    do
    :: holds_one(me) || tickets + probes > 0 ->
        if
        :: holds_one(me) -> settle(me)
        :: true
        fi;
        if
        :: claim(me)
        :: true
        fi;
        if
        :: d_step { end_transaction(me, 1) }
        :: !has_failed -> d_step { end_transaction(me, 0); has_failed = 1 }
        fi
    od
}

/* _end_groups, once */
proctype Cleanup() {
    bit is_idle;

    is_idle = row == THERE && !sees_leases(CLEANUP) && !sees_members(CLEANUP);
    d_step {
        is_idle = is_idle && row == THERE && can_lock_strongly(CLEANUP);
        lock_by = (is_idle -> CLEANUP : lock_by);
        lock_is_strong = lock_is_strong || is_idle
    };
#ifndef FAULT_END_SEEN
    is_idle = is_idle && !sees_leases(CLEANUP) && !sees_members(CLEANUP);
#endif
    row = (is_idle -> DELETED : row);
    atomic {
#ifdef REACH_ROW_ENDS
        assert(!is_idle);
#endif
        if
        :: row = (is_idle -> ABSENT : row)
        :: row = (is_idle -> THERE : row)
        fi;
        assert(row != ABSENT || !(message[0] == HELD || message[P1] == HELD || message[P2] == HELD));
        lock_is_strong = lock_is_strong && lock_by != CLEANUP;
        lock_by = (lock_by == CLEANUP -> NOBODY : lock_by);
        is_idle = 0
    }
}

init {
    atomic {
        message[0] = HELD;
        owner[0] = W0;
        row = THERE;
        run Producer(P1);
#ifdef WITH_CLEANUP
        message[P2] = OVER;
        run Cleanup();
#else
        run Producer(P2);
#endif
        run Worker(W0);
        run Worker(W1)
    };
    timeout -> assert(message[0] == OVER && message[P1] == OVER && message[P2] == OVER)
}
