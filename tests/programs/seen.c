/* For run-seen: UE 0 sends a message that is long to UE 1, which is there before; then all meet. With "late" UE 1 never comes. */
#include <RCCE.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BYTES (256 * 1024)

static char buffer[BYTES];

int RCCE_APP(int argc, char **argv)
{
    RCCE_init(&argc, &argv);
    int me = RCCE_ue();
    if (argc > 1 && strcmp(argv[1], "late") == 0 && me == 1)
        sleep(600);
    if (me == 0) {
        usleep(300000);
        memset(buffer, 7, BYTES);
        RCCE_send(buffer, BYTES, 1);
    } else if (me == 1) {
        RCCE_recv(buffer, BYTES, 0);
        if (buffer[BYTES - 1] != 7)
            return 1;
    }
    RCCE_barrier(&RCCE_COMM_WORLD);
    RCCE_finalize();
    return 0;
}
