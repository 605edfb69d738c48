/*
 * mpi-ext.h: the calls of Fujitsu's MPI for positions of ranks in the Tofu interconnect, for C and C++ programs of any MPI. Here the
 * interconnect is the virtual network of uTofu: rank r of MPI_COMM_WORLD is at the result of utofu_query_my_coords(). If the MPI has an
 * mpi-ext.h, this header includes it. Link with -ltofucom.
 *
 * The functions return FJMPI_SUCCESS or FJMPI_ERR_TOPOLOGY_*. They are called between MPI_Init() and MPI_Finalize().
 *
 * Logical coordinates locate compute nodes in a torus of one to three dimensions. If all nodes of UNIPGAS_TOFU_SHAPE (XxYxZxAxBxC) have
 * processes, the axes have X*A, Y*B and Z*C nodes, and neighbours in the torus are neighbours in the interconnect. Trailing axes of one
 * node do not count as dimensions. Otherwise there is one axis, of the nodes with processes.
 */
#ifndef UNIPGAS_MPI_EXT_H
#define UNIPGAS_MPI_EXT_H

/* #include_next is an extension. */
#pragma GCC system_header

#include <mpi.h>
#ifdef __has_include_next
#if __has_include_next (<mpi-ext.h>)
#include_next <mpi-ext.h>
#endif
#endif

#define FJMPI_SUCCESS MPI_SUCCESS
#define FJMPI_ERR_TOPOLOGY_INVALID_COMM     1001 /* not of processes of MPI_COMM_WORLD, or that has no place in the network */
#define FJMPI_ERR_TOPOLOGY_NODE_SHARED_JOB  1002 /* never here */
#define FJMPI_ERR_TOPOLOGY_INVALID_RANK     1003
#define FJMPI_ERR_TOPOLOGY_INVALID_VIEW     1004 /* not one of the three below */
#define FJMPI_ERR_TOPOLOGY_INVALID_DIMS     1005 /* fewer or other dimensions than there are */
#define FJMPI_ERR_TOPOLOGY_INVALID_COORDS   1006 /* no such node */
#define FJMPI_ERR_TOPOLOGY_INVALID_POINTER  1007
#define FJMPI_ERR_TOPOLOGY_NO_PROCESS       1008 /* at these coordinates */

/* Kinds of coordinates ("views"). */
#define FJMPI_LOGICAL  0 /* as many numbers as FJMPI_Topology_get_dimension() sets */
#define FJMPI_TOFU_SYS 1 /* X, Y, Z, A, B, C in the system */
#define FJMPI_TOFU_REL 2 /* X, Y, Z, A, B, C in the part of it that the job has; the same here */

#ifdef __cplusplus
extern "C" {
#endif

/* Parts of the functions below, not for programs; me, size and rank are of MPI_COMM_WORLD. */
int unipgas_fjmpi_shape (int me, int size, int *dimension, int shape[3]);
int unipgas_fjmpi_coords (int me, int size, int rank, int view, int maxdims, int coords[]);
int unipgas_fjmpi_ranks (int me, int size, int view, const int coords[], int *first, int *number);

#ifdef __cplusplus
}
#endif

static __inline__ int
unipgas_fjmpi_world (int *me, int *size)
{
  int begun = 0, ended = 0;
  MPI_Initialized (&begun);
  MPI_Finalized (&ended);
  if (!begun || ended)
    return FJMPI_ERR_TOPOLOGY_INVALID_COMM;
  MPI_Comm_rank (MPI_COMM_WORLD, me);
  MPI_Comm_size (MPI_COMM_WORLD, size);
  return FJMPI_SUCCESS;
}

/* The ranks in MPI_COMM_WORLD of ranks of comm, or the other way round. */
static __inline__ int
unipgas_fjmpi_translate (MPI_Comm comm, int to_world, int number, int from[], int to[])
{
  MPI_Group group, world;
  int size, i, code = FJMPI_SUCCESS;
  if (comm == MPI_COMM_NULL || MPI_Comm_group (comm, &group) != MPI_SUCCESS)
    return FJMPI_ERR_TOPOLOGY_INVALID_COMM;
  MPI_Comm_group (MPI_COMM_WORLD, &world);
  MPI_Group_size (to_world ? group : world, &size);
  for (i = 0; i < number; i++)
    if (from[i] < 0 || from[i] >= size)
      code = FJMPI_ERR_TOPOLOGY_INVALID_RANK;
  if (code == FJMPI_SUCCESS)
    MPI_Group_translate_ranks (to_world ? group : world, number, from, to_world ? world : group, to);
  MPI_Group_free (&group);
  MPI_Group_free (&world);
  return code;
}

/** Sets *size to the number of logical dimensions, 1 to 3. */
static __inline__ int
FJMPI_Topology_get_dimension (int *size)
{
  int me, all, shape[3], code = unipgas_fjmpi_world (&me, &all);
  return code != FJMPI_SUCCESS ? code : unipgas_fjmpi_shape (me, all, size, shape);
}

/** Sets the lengths of the logical axes; 0 for missing axes. */
static __inline__ int
FJMPI_Topology_get_shape (int *x, int *y, int *z)
{
  int me, all, dimension, shape[3], code = unipgas_fjmpi_world (&me, &all);
  if (code != FJMPI_SUCCESS)
    return code;
  if (!x || !y || !z)
    return FJMPI_ERR_TOPOLOGY_INVALID_POINTER;
  code = unipgas_fjmpi_shape (me, all, &dimension, shape);
  if (code == FJMPI_SUCCESS)
    {
      *x = shape[0];
      *y = shape[1];
      *z = shape[2];
    }
  return code;
}

/** Sets coords[] to the coordinates of a rank of comm, in one of the three views. coords[] has room for maxdims numbers, which must suffice. */
static __inline__ int
FJMPI_Topology_get_coords (MPI_Comm comm, int rank, int view, int maxdims, int coords[])
{
  int me, all, world, code = unipgas_fjmpi_world (&me, &all);
  if (code == FJMPI_SUCCESS)
    code = unipgas_fjmpi_translate (comm, 1, 1, &rank, &world);
  if (code == FJMPI_SUCCESS && world == MPI_UNDEFINED)
    code = FJMPI_ERR_TOPOLOGY_INVALID_COMM;
  return code != FJMPI_SUCCESS ? code : unipgas_fjmpi_coords (me, all, world, view, maxdims, coords);
}

/** Sets ranks[] to the ranks of comm at the node with these coordinates, at most maxppn, and *outppn to their number, which may be 0. */
static __inline__ int
FJMPI_Topology_get_ranks (MPI_Comm comm, int view, int coords[], int maxppn, int *outppn, int ranks[])
{
  int me, all, first, number, i, rank, code = unipgas_fjmpi_world (&me, &all);
  if (code != FJMPI_SUCCESS)
    return code;
  if (!outppn || !ranks)
    return FJMPI_ERR_TOPOLOGY_INVALID_POINTER;
  code = unipgas_fjmpi_ranks (me, all, view, coords, &first, &number);
  if (code != FJMPI_SUCCESS)
    return code;
  *outppn = 0;
  for (i = first; i < first + number && *outppn < maxppn; i++)
    {
      code = unipgas_fjmpi_translate (comm, 0, 1, &i, &rank);
      if (code != FJMPI_SUCCESS)
        return code;
      if (rank != MPI_UNDEFINED)
        ranks[(*outppn)++] = rank;
    }
  return FJMPI_SUCCESS;
}

/* ---------------------------------------------------------------- the calls of older systems: ranks of MPI_COMM_WORLD */

static __inline__ int
unipgas_fjmpi_of_rank (int rank, int view, int dimensions, int coords[6])
{
  int me, all, dimension, shape[3], code = unipgas_fjmpi_world (&me, &all);
  if (code == FJMPI_SUCCESS)
    code = unipgas_fjmpi_shape (me, all, &dimension, shape);
  if (code == FJMPI_SUCCESS && view == FJMPI_LOGICAL && dimension != dimensions)
    code = FJMPI_ERR_TOPOLOGY_INVALID_DIMS;
  return code != FJMPI_SUCCESS ? code : unipgas_fjmpi_coords (me, all, rank, view, dimensions, coords);
}

static __inline__ int
unipgas_fjmpi_to_rank (int dimensions, const int coords[3], int *rank)
{
  int me, all, dimension, first, number, shape[3], code = unipgas_fjmpi_world (&me, &all);
  if (code == FJMPI_SUCCESS)
    code = unipgas_fjmpi_shape (me, all, &dimension, shape);
  if (code == FJMPI_SUCCESS && dimension != dimensions)
    code = FJMPI_ERR_TOPOLOGY_INVALID_DIMS;
  if (code == FJMPI_SUCCESS)
    code = unipgas_fjmpi_ranks (me, all, FJMPI_LOGICAL, coords, &first, &number);
  if (code == FJMPI_SUCCESS && !rank)
    code = FJMPI_ERR_TOPOLOGY_INVALID_POINTER;
  if (code == FJMPI_SUCCESS && number == 0)
    code = FJMPI_ERR_TOPOLOGY_NO_PROCESS;
  if (code == FJMPI_SUCCESS)
    *rank = first;
  return code;
}

/** Logical coordinates of a rank, with one dimension. */
static __inline__ int
FJMPI_Topology_rank2x (int rank, int *x)
{
  int at[6], code = unipgas_fjmpi_of_rank (rank, FJMPI_LOGICAL, 1, at);
  if (code == FJMPI_SUCCESS && !x)
    return FJMPI_ERR_TOPOLOGY_INVALID_POINTER;
  if (code == FJMPI_SUCCESS)
    *x = at[0];
  return code;
}

/** The same, with two. */
static __inline__ int
FJMPI_Topology_rank2xy (int rank, int *x, int *y)
{
  int at[6], code = unipgas_fjmpi_of_rank (rank, FJMPI_LOGICAL, 2, at);
  if (code == FJMPI_SUCCESS && (!x || !y))
    return FJMPI_ERR_TOPOLOGY_INVALID_POINTER;
  if (code == FJMPI_SUCCESS)
    {
      *x = at[0];
      *y = at[1];
    }
  return code;
}

/** The same, with three. */
static __inline__ int
FJMPI_Topology_rank2xyz (int rank, int *x, int *y, int *z)
{
  int at[6], code = unipgas_fjmpi_of_rank (rank, FJMPI_LOGICAL, 3, at);
  if (code == FJMPI_SUCCESS && (!x || !y || !z))
    return FJMPI_ERR_TOPOLOGY_INVALID_POINTER;
  if (code == FJMPI_SUCCESS)
    {
      *x = at[0];
      *y = at[1];
      *z = at[2];
    }
  return code;
}

/** The (lowest) rank at logical coordinates, with one dimension. */
static __inline__ int
FJMPI_Topology_x2rank (int x, int *rank)
{
  int at[3];
  at[0] = x;
  return unipgas_fjmpi_to_rank (1, at, rank);
}

/** The same, with two. */
static __inline__ int
FJMPI_Topology_xy2rank (int x, int y, int *rank)
{
  int at[3];
  at[0] = x;
  at[1] = y;
  return unipgas_fjmpi_to_rank (2, at, rank);
}

/** The same, with three. */
static __inline__ int
FJMPI_Topology_xyz2rank (int x, int y, int z, int *rank)
{
  int at[3];
  at[0] = x;
  at[1] = y;
  at[2] = z;
  return unipgas_fjmpi_to_rank (3, at, rank);
}

/** The node of a rank in the system. */
static __inline__ int
FJMPI_Topology_sys_rank2xyzabc (int rank, int *x, int *y, int *z, int *a, int *b, int *c)
{
  int at[6], code = unipgas_fjmpi_of_rank (rank, FJMPI_TOFU_SYS, 6, at);
  if (code == FJMPI_SUCCESS && (!x || !y || !z || !a || !b || !c))
    return FJMPI_ERR_TOPOLOGY_INVALID_POINTER;
  if (code == FJMPI_SUCCESS)
    {
      *x = at[0];
      *y = at[1];
      *z = at[2];
      *a = at[3];
      *b = at[4];
      *c = at[5];
    }
  return code;
}

/** The node of a rank in the part of the system that the job has; the same here. */
static __inline__ int
FJMPI_Topology_rel_rank2xyzabc (int rank, int *x, int *y, int *z, int *a, int *b, int *c)
{
  return FJMPI_Topology_sys_rank2xyzabc (rank, x, y, z, a, b, c);
}

#endif
