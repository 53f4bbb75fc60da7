/* FIFO groups without waiting: one group, producers that add to it, workers that claim and settle. Beside
   sql/postgres/queue/_admit.sql, _claim_groups.sql, _regroup.sql, _probe.sql and _lock_groups.sql.

   A group has one ticket however long it is. A ticket too many is dropped by the claim that meets it; one too few
   would lose messages. A producer that sees the group's row and gets a key share lock on it leaves the ticket to
   whoever settles the group; any other brings one. The row ends, and a ticket is left out, only under a lock that
   no producer's key share allows; who cannot have it has the group probed later.

   READ COMMITTED: each statement has a snapshot of its own, so each is a step here, and what a transaction does shows
   in the others' snapshots once it has committed. A statement that looks for the row and locks it, or enters it, is
   one step too: of a version that has gone since the snapshot no lock can be had, and one that has come since is
   passed over as if the step had been before. (Nobody waits for another one's entering: an advisory lock sees to it.)

   Must hold: at most one worker holds messages of the group, whose row is there meanwhile; of what waits when a claim
   has locked the group, none is passed over for a later one; when everybody has ended, no message waits.

   Planted, to be found:
     FAULT_TRUST_VIEW       a regroup that sees no member ends there, without the lock
     FAULT_TRUST_ROW        a producer that sees the row brings no ticket, whether it got the lock or not
     FAULT_KEY_SHARE        the row is locked and deleted although a producer holds a key share of it
     FAULT_OLD_VIEW         a regroup puts out no ticket for members that came between its first look and its lock
     FAULT_TRUST_LEASE      a regroup that sees a lease leaves the group to whoever settles it, who may have decided
     FAULT_MEMBERS_ALONE    the row is deleted as there is no member, though there may be leases since the first look
     FAULT_NO_PROBE         a regroup that does not get the lock leaves no probe
     FAULT_DROP_TICKET      a claim that does not get the row drops the ticket although there may be members
     FAULT_STALE_CLAIM      a claim goes by what it saw before it had the row's lock
   Must be possible, so an assertion denies it, to be found:
     REACH_ROW_ENDS         the row goes
     REACH_SURPLUS          a claim drops a ticket too many
     REACH_KEY_SHARE        a message is added without a ticket */

#define MESSAGES 3   /* in the order of their ids: one that is there, with its ticket, and one of each producer */
#define P1 1
#define P2 2
#define W0 3
#define W1 4
#define SESSIONS 5
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
    DELETED,         /* by an open transaction */
    RENEWED          /* deleted and entered again by an open transaction */
};

mtype message[MESSAGES] = NOT_YET;
byte owner[MESSAGES] = NOBODY;
bit was_returned;            /* one of them once */
mtype row = ABSENT;
byte row_by = NOBODY;        /* whose transaction has entered or deleted it */
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
#define sees_row(me) (row == THERE || row == RENEWED || (row == ENTERED && row_by == me) \
                      || (row == DELETED && row_by != me))
/* Which locks it would get. */
#define owns_row(me) ((row == ENTERED || row == RENEWED) && row_by == me)
#define can_lock(me) (owns_row(me) || (row == THERE && (lock_by == NOBODY || lock_by == me)))
#define can_share(me) (owns_row(me) || (row == THERE && (!lock_is_strong || lock_by == me)))
#ifdef FAULT_KEY_SHARE
#define can_lock_strongly(me) can_lock(me)
#else
#define can_lock_strongly(me) (can_lock(me) && !key_share[P1] && !key_share[P2] && !key_share[W0 + W1 - me])
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
    :: row_by == me && row == DELETED -> row = (committed -> ABSENT : THERE)
    :: row_by == me && row == RENEWED -> row = THERE
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

/* _admit: may be under an older snapshot, where the row proves nothing and is not asked for. */
proctype Producer(byte me) {
    bit known;

    if
#ifdef FAULT_TRUST_ROW
    :: known = sees_row(me)
#else
    :: d_step { known = can_share(me); key_share[me] = known }
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

/* _regroup */
inline regroup(me) {
    d_step {
        /* Whether it is free, and has a head: then it gets its ticket. */
        is_held = sees_leases(me);
        is_unsure = !is_held && !sees_members(me);
        new_tickets = new_tickets + (!is_held && !is_unsure)
    };
#ifdef FAULT_TRUST_LEASE
    is_held = 0;
#endif
#ifdef FAULT_TRUST_VIEW
    is_unsure = 0;
#endif
    if
    :: is_held ->
        /* A settlement that has not decided yet will see the members, or this key share. */
        d_step {
            key_share[me] = can_share(me);
            new_probes = new_probes + !key_share[me];
            is_held = 0
        }
    :: is_unsure ->
        /* Nobody can be adding a member under this lock without a ticket; what was added before it shows now. */
        d_step {
            is_locked = can_lock_strongly(me);
            lock_by = (is_locked && row == THERE -> me : lock_by);
            lock_is_strong = lock_is_strong || (is_locked && row == THERE)
        };
        d_step {
            if
#ifdef FAULT_MEMBERS_ALONE
            :: is_locked && !sees_members(me) ->
#else
            :: is_locked && !sees_members(me) && !sees_leases(me) ->
#endif
#ifdef REACH_ROW_ENDS
                assert(false);
#endif
                row = (row == ENTERED -> ABSENT : DELETED);
                row_by = (row == ABSENT -> NOBODY : me)
            :: else
            fi
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

/* _claim_groups, with a ticket of the group */
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
                is_locked = row == ABSENT || (row == DELETED && row_by == me);
                row_by = (is_locked -> me : row_by);
                row = (is_locked -> (row == ABSENT -> ENTERED : RENEWED) : row);
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
        /* Whoever holds it puts out the next ticket. */
        is_free = !sees_leases(me);
#ifdef FAULT_STALE_CLAIM
        is_free = stale_free;
#endif
#ifdef REACH_SURPLUS
        assert(is_free);
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
    :: d_step { probes > 0 -> probes--; took_probes++ }; regroup(me)
    :: true
    fi;
    if
    :: d_step { tickets > 0 -> tickets--; took_tickets++ }; claim_group(me)
    :: d_step { new_tickets > 0 -> new_tickets-- }; claim_group(me)
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
        :: !was_returned -> message[n] = RETURNED; was_returned = 1
        fi;
        n = 0
    };
    regroup(me)
}

proctype Worker(byte me) {
    byte new_tickets, new_probes, took_tickets, took_probes, n, first, share;
    bit is_held, is_unsure, is_locked, is_free;
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
        :: d_step { end_transaction(me, 0) }
        fi
    od
}

init {
    atomic {
        message[0] = WAITS;
        tickets = 1;
        run Producer(P1);
        run Producer(P2);
        run Worker(W0);
        run Worker(W1)
    };
    timeout -> assert(message[0] == OVER && message[P1] == OVER && message[P2] == OVER)
}
