/* Low marks: a claim scans the tickets from `low` on, so that it does not walk over dead rows. Beside
   sql/postgres/queue/_tick.sql.

   A tick notes a pair: the last ticket that was issued, and then an xid that it draws for this. Whoever drew a
   ticket up to the noted one had an xid before (enqueue asks for it first), so it is below the noted xid; and
   whoever draws from a sequence holds the sequence's lock until after its transaction has ended for everybody.
   So once no transaction below the noted xid holds that lock (or none runs at all), nobody can bring such a
   ticket any more, and with a snapshot that is taken after that look the mark may move to the smallest visible
   ticket, at most to one past the noted.

   Must hold always: no row that is there has a ticket below the mark.

   Planted, to be found:
     FAULT_SNAPSHOT_XID     the noted xid is a snapshot's xmax in place of a drawn one
     FAULT_XID_FIRST        the ticket is read after the xid was drawn
     FAULT_TOO_MANY         the mark goes to two past the noted ticket
     FAULT_FIRST_TICKET     a sequence that nobody has drawn from shows 1, and that is believed
     FAULT_LOOK_LATE        the locks are looked at after the snapshot was taken
     FAULT_TICKET_FIRST     a producer draws its ticket before it has an xid
     FAULT_OWN_VIEW         a transaction that has itself deleted rows moves the mark by what it sees
     FAULT_UNLOCK_FIRST     (PostgreSQL's part) the lock goes before the transaction has ended
   Merely slow, so that nothing is found:
     SLOW_ANY_HOLDER        whoever holds the lock is waited for, also those with a later xid
     SLOW_TOO_FEW           the mark goes to the noted ticket where nothing is visible
   Must be possible, so an assertion denies it, to be found:
     REACH_STRANGER         the mark passes a ticket though a stranger with an older xid stays open
     REACH_OVERLAP          and though a later producer holds the lock; not with SLOW_ANY_HOLDER
     REACH_PAST             the mark passes all tickets that were issued; not with SLOW_TOO_FEW */

/* Transactions. The stranger has an old xid, holds nothing and never ends. OTHER does nothing but tick. */
#define P0 0
#define P1 1
#define CONSUMER 2
#define STRANGER 3
#define OTHER 4
/* Rows: one of each producer, and what a claim leaves of the first one's run. */
#define REST 2
#define NO_ROW 3

mtype = { NOT_BEGUN, RUNNING, COMMITTED, ROLLED_BACK };

byte last;                     /* tickets issued */
byte low = 1;
byte next_xid = 1;
byte noted_ticket, noted_xid;  /* noted_xid 0: nothing is noted */
bit ticking;                   /* one tick at a time, by a row lock */
#ifdef FAULT_SNAPSHOT_XID
byte ended_xid;                /* the highest of an ended transaction: a snapshot's xmax is one more */
#endif

mtype state[4] = NOT_BEGUN;
byte xid[4];
bit holds[2];                  /* the sequence's lock, by producer */
byte ticket[3];                /* by row; 0: not inserted */
byte taken = NO_ROW;           /* the row that the consumer has deleted */

/* What everybody's next snapshot sees, and what a transaction that has done this itself sees. */
#define writer(r) (r == REST -> CONSUMER : r)
#define is_there(r) (ticket[r] > 0 && state[writer(r)] == COMMITTED && !(taken == r && state[CONSUMER] == COMMITTED))
#define sees(r, me) (ticket[r] > 0 && (state[writer(r)] == COMMITTED || writer(r) == me) \
                     && !(taken == r && (state[CONSUMER] == COMMITTED || me == CONSUMER)))
#define safe(r) (!is_there(r) || ticket[r] >= low)

#ifdef SLOW_ANY_HOLDER
#define blocks(t) (holds[t])
#else
#define blocks(t) (holds[t] && xid[t] > 0 && xid[t] < noted_xid)
#endif
#define runs_before(t) (state[t] == RUNNING && xid[t] < noted_xid)

inline draw_xid(t) {
    d_step { xid[t] = next_xid; next_xid++; state[t] = RUNNING }
}

/* At one moment for every snapshot. */
inline end_transaction(t) {
    if
    :: state[t] = COMMITTED
    :: state[t] = ROLLED_BACK
    fi;
#ifdef FAULT_SNAPSHOT_XID
    ended_xid = (xid[t] > ended_xid -> xid[t] : ended_xid);
#endif
    assert(safe(P0) && safe(P1) && safe(REST))
}

proctype Producer(byte me) {
#ifdef FAULT_TICKET_FIRST
    holds[me] = 1;
    d_step { last++; ticket[me] = last };
    draw_xid(me);
#else
    draw_xid(me);
    holds[me] = 1;
    d_step {
        last++;
        ticket[me] = last;  /* nobody else sees it before the commit */
        last = (me == P0 -> last + 1 : last)  /* a run of two messages stands at the first one's number */
    };
#endif
#ifdef FAULT_UNLOCK_FIRST
    holds[me] = 0;
#endif
    atomic { end_transaction(me) };
    d_step { holds[me] = 0; xid[me] = 0 }
}

/* In one step, since a holder's entry is only waited for to go. */
inline look_at_locks() {
    d_step {
        is_over = noted_xid > 0 && (
            !(blocks(P0) || blocks(P1))
            || !(runs_before(P0) || runs_before(P1) || runs_before(CONSUMER) || runs_before(STRANGER)));
        was_overlapped = (holds[P0] && xid[P0] >= noted_xid) || (holds[P1] && xid[P1] >= noted_xid)
    }
}

inline consider(r, me) {
    target = (sees(r, me) && ticket[r] >= low && ticket[r] < target -> ticket[r] : target)
}

/* One statement, one snapshot. */
inline look_at_rows(me) {
    d_step {
        target = noted_ticket + 1;
#ifdef FAULT_TOO_MANY
        target = noted_ticket + 2;
#endif
#ifdef SLOW_TOO_FEW
        target = (noted_ticket > low -> noted_ticket : low);
#endif
        consider(P0, me);
        consider(P1, me);
        consider(REST, me)
    }
}

inline tick(me) {
    atomic { !ticking -> ticking = 1 };
#ifdef FAULT_XID_FIRST
    d_step { new_xid = next_xid; next_xid++ };
    new_ticket = last;
#else
    new_ticket = last;
#ifdef FAULT_SNAPSHOT_XID
    new_xid = ended_xid + 1;
#else
    d_step { new_xid = next_xid; next_xid++ };
#endif
#endif
#ifdef FAULT_FIRST_TICKET
    new_ticket = (new_ticket == 0 -> 1 : new_ticket);
#endif
#ifdef FAULT_LOOK_LATE
    look_at_rows(me);
    look_at_locks();
#else
    look_at_locks();
    look_at_rows(me);
#endif
#ifndef FAULT_OWN_VIEW
    is_over = is_over && !(me == CONSUMER && taken != NO_ROW);
#endif
    d_step {
        if
        :: is_over ->
            low = target;
            assert(safe(P0) && safe(P1) && safe(REST));
#ifdef REACH_STRANGER
            assert(!(low > 1 && runs_before(STRANGER)));
#endif
#ifdef REACH_OVERLAP
            assert(!(low > 1 && runs_before(STRANGER) && was_overlapped));
#endif
#ifdef REACH_PAST
            assert(!(last > 0 && low > last));
#endif
        :: else
        fi;
        if
        :: is_over || noted_xid == 0 -> noted_ticket = new_ticket; noted_xid = new_xid
        :: else
        fi;
        new_ticket = 0; new_xid = 0; target = 0; is_over = 0; was_overlapped = 0;
        ticking = 0
    }
}

/* Takes a row that it sees from the mark on, whole, or the first message of the first producer's run: then it enters
   the rest again under the rest's own number, which it need not draw. It may tick before it ends. */
proctype Consumer() {
    byte new_ticket, new_xid, target;
    bit is_over, was_overlapped;

end: /* there may never be one */
    atomic {
        (is_there(P0) && ticket[P0] >= low) || (is_there(P1) && ticket[P1] >= low) ->
        draw_xid(CONSUMER);
        if
        :: is_there(P0) && ticket[P0] >= low -> taken = P0
        :: is_there(P0) && ticket[P0] >= low -> taken = P0; ticket[REST] = ticket[P0] + 1
        :: is_there(P1) && ticket[P1] >= low -> taken = P1
        fi
    };
    if
    :: tick(CONSUMER)
    :: true
    fi;
    atomic { end_transaction(CONSUMER); xid[CONSUMER] = 0 }
}

proctype Ticker() {
    byte new_ticket, new_xid, target;
    bit is_over, was_overlapped;

    tick(OTHER);
    tick(OTHER);
    tick(OTHER)
}

init {
    atomic {
        if
        :: draw_xid(STRANGER)
        :: true
        fi;
        run Producer(P0);
        run Producer(P1);
        run Consumer();
        run Ticker()
    }
}
