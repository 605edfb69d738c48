/*
 * Names of iRCCE beside iRCCE.h.
 */
#ifndef IRCCE_LIB_H
#define IRCCE_LIB_H

#include "RCCE_lib.h"
#include "iRCCE.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Whether this UE's flag has the value; *result: 1 or 0. */
int iRCCE_test_flag(RCCE_FLAG flag, RCCE_FLAG_STATUS value, int *result);

#ifdef __cplusplus
}
#endif

#endif
