/* Common part of the programs: a check that prints a line and ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition) \
  do { \
    if (!(condition)) { \
      fprintf(stderr, "%s:%d: %s (UE %d)\n", __FILE__, __LINE__, #condition, RCCE_ue()); \
      exit(1); \
    } \
  } while (0)

#define OK(call) CHECK((call) == RCCE_SUCCESS)

#endif
