/* GASPI and RCCE in one program: a ring of RCCE messages. All processes collect the results by GASPI notifications.
 *
 *   unipgas cc --api gaspi -O2 gaspi_and_rcce.c -lRCCE -o gaspi_and_rcce
 *   unipgas run -n 4 ./gaspi_and_rcce
 *
 * All processes start (and end) the interfaces in the same order. */
#include <GASPI.h>
#include <stdio.h>
#include <stdlib.h>

#include "RCCE.h"

static void must(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "gaspi_and_rcce: %s failed\n", what);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    const gaspi_segment_id_t segment = 0;
    gaspi_rank_t me, ranks, rank;
    gaspi_pointer_t base;
    int *values, sum = 0, mine, before, left, right;

    must(gaspi_proc_init(GASPI_BLOCK) == GASPI_SUCCESS, "gaspi_proc_init");
    must(RCCE_init(&argc, &argv) == RCCE_SUCCESS, "RCCE_init");
    gaspi_proc_rank(&me);
    gaspi_proc_num(&ranks);
    must(RCCE_ue() == me && RCCE_num_ues() == ranks, "agreement about ranks");
    must(gaspi_segment_create(segment, ranks * sizeof(int) + 64, GASPI_GROUP_ALL, GASPI_BLOCK, GASPI_MEM_INITIALIZED) ==
             GASPI_SUCCESS,
         "gaspi_segment_create");
    gaspi_segment_ptr(segment, &base);
    values = base;

    /* To the right by RCCE. A send returns after the receive, so even ranks send first. */
    left = (me + ranks - 1) % ranks;
    right = (me + 1) % ranks;
    mine = 3 * me + 1;
    before = mine;
    if (ranks > 1) {
        if (me % 2 == 0 && right != me)
            must(RCCE_send((char *)&mine, sizeof mine, right) == RCCE_SUCCESS, "RCCE_send");
        must(RCCE_recv((char *)&before, sizeof before, left) == RCCE_SUCCESS, "RCCE_recv");
        if (me % 2 != 0)
            must(RCCE_send((char *)&mine, sizeof mine, right) == RCCE_SUCCESS, "RCCE_send");
    }
    must(before == 3 * left + 1, "the message's content");

    /* To all processes by GASPI. */
    values[me] = before;
    for (rank = 0; rank < ranks; rank++)
        if (rank != me)
            must(gaspi_write_notify(segment, me * sizeof(int), rank, segment, me * sizeof(int), sizeof(int), me, 1, 0,
                                    GASPI_BLOCK) == GASPI_SUCCESS,
                 "gaspi_write_notify");
    for (rank = 0; rank + 1 < ranks; rank++) {
        gaspi_notification_id_t id;
        gaspi_notification_t value;
        must(gaspi_notify_waitsome(segment, 0, ranks, &id, GASPI_BLOCK) == GASPI_SUCCESS, "gaspi_notify_waitsome");
        gaspi_notify_reset(segment, id, &value);
    }
    gaspi_wait(0, GASPI_BLOCK);
    for (rank = 0; rank < ranks; rank++)
        sum += values[rank];
    must(sum == 3 * ranks * (ranks - 1) / 2 + ranks, "the sum");
    if (me == 0)
        printf("gaspi_and_rcce: %d processes, sum %d\n", ranks, sum);

    gaspi_barrier(GASPI_GROUP_ALL, GASPI_BLOCK);
    must(gaspi_proc_term(GASPI_BLOCK) == GASPI_SUCCESS, "gaspi_proc_term");
    must(RCCE_finalize() == RCCE_SUCCESS, "RCCE_finalize");
    return 0;
}
