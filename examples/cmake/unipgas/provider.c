/* Checks that libfabric offers the provider unipgas. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/fabric.h>

int
main (void)
{
  struct fi_info *hints = fi_allocinfo (), *info = NULL;
  int result;

  if (!hints)
    return EXIT_FAILURE;
  hints->fabric_attr->prov_name = strdup ("unipgas");
  result = fi_getinfo (FI_VERSION (1, 14), NULL, NULL, 0, hints, &info);
  if (result != 0)
    fprintf (stderr, "provider: libfabric does not find unipgas: %s (is FI_PROVIDER_PATH set?)\n", fi_strerror (-result));
  else
    printf ("%s is there\n", info->fabric_attr->prov_name);
  fi_freeinfo (info);
  fi_freeinfo (hints);
  return result == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
