/*
 * What RCCE programs use beside RCCE.h: the variables behind RCCE_ue() and RCCE_num_ues(), and, for programs of the simple interface,
 * buffers and flags. They are set by RCCE_init().
 */
#ifndef UNIPGAS_RCCE_LIB_H
#define UNIPGAS_RCCE_LIB_H

#include "RCCE.h"

#ifdef __cplusplus
extern "C" {
#endif

extern int RCCE_IAM;
extern int RCCE_NP;
/** The core that each UE stands for. */
extern int RC_COREID[RCCE_MAXNP];

#ifndef GORY

/** Allocates one line of the MPB: null for other sizes than 32, or if there is no room. */
t_vcharp RCCE_malloc(size_t size);
t_vcharp RCCE_malloc_request(size_t size, size_t *chunk);
void RCCE_free(t_vcharp address);
/** Copies to UE id's MPB, any size. */
int RCCE_put(t_vcharp target, t_vcharp source, int size, int id);
/** Copies from UE id's MPB, any size. */
int RCCE_get(t_vcharp target, t_vcharp source, int size, int id);
int RCCE_wait_until(RCCE_FLAG flag, RCCE_FLAG_STATUS value);
int RCCE_flag_alloc(RCCE_FLAG *flag);
int RCCE_flag_free(RCCE_FLAG *flag);
int RCCE_flag_write(RCCE_FLAG *flag, RCCE_FLAG_STATUS value, int id);
int RCCE_flag_read(RCCE_FLAG flag, RCCE_FLAG_STATUS *value, int id);

#endif

#ifdef __cplusplus
}
#endif

#endif
