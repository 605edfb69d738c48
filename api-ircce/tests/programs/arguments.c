/* Prints the remaining arguments, and the cores. */
#include "RCCE_lib.h"

int main(int argc, char **argv)
{
  int i;
  if (RCCE_init(&argc, &argv) != RCCE_SUCCESS)
    return 3;
  for (i = 1; i < argc; i++)
    printf("%s ", argv[i]);
  printf("/ %s %d\n", argv[0] && *argv[0] ? "named" : "nameless", RC_COREID[RCCE_NP - 1]);
  return RCCE_finalize();
}
