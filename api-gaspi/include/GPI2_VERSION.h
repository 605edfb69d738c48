/* Version of the GASPI interface that these headers offer: source and binary layout of release 1.6. */
#ifndef UNIPGAS_GPI2_VERSION_H
#define UNIPGAS_GPI2_VERSION_H

#define GASPI_MAJOR_VERSION (1)
#define GASPI_MINOR_VERSION (6)
#define GASPI_REVISION (0)

/** The same as one number, as gaspi_version() returns it. */
#define GASPI_VERSION (GASPI_MAJOR_VERSION + GASPI_MINOR_VERSION / 10.0f + GASPI_REVISION / 100.0f)

#endif
