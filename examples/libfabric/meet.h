/*
 * Helpers of the examples. They open a reliable endpoint of the provider that FI_PROVIDER names. They exchange endpoint names over TCP,
 * as programs of libfabric do without a launcher. Two processes on two hosts must name a network (UNIPGAS_NETWORKS), unless a launcher
 * has started them together.
 */
#ifndef MEET_H
#define MEET_H

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>

struct node
{
  struct fi_info *info;
  struct fid_fabric *fabric;
  struct fid_domain *domain;
  struct fid_av *av;
  struct fid_cq *cq;
  struct fid_ep *ep;
  fi_addr_t peer;
  int line; /* the TCP connection */
};

static void
check (long result, const char *what)
{
  if (result < 0)
    {
      fprintf (stderr, "%s: %s\n", what, fi_strerror ((int) -result));
      exit (1);
    }
}

static inline double
seconds (void)
{
  struct timespec now;
  clock_gettime (CLOCK_MONOTONIC, &now);
  return (double) now.tv_sec + (double) now.tv_nsec * 1e-9;
}

/* The server listens on a port of this machine (0: any port; it prints the number). The client connects to host:port, and retries for a
   minute, because both may start at the same time. */
static inline int
connect_line (const char *host, const char *port)
{
  struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM, .ai_flags = host ? 0 : AI_PASSIVE }, *found;
  if (getaddrinfo (host, port, &hints, &found))
    check (-FI_EADDRNOTAVAIL, "getaddrinfo");
  int line = socket (AF_INET, SOCK_STREAM, 0);
  if (!host)
    {
      struct sockaddr_in own;
      socklen_t len = sizeof own;
      int yes = 1;
      setsockopt (line, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
      if (bind (line, found->ai_addr, found->ai_addrlen) || listen (line, 1)
          || getsockname (line, (struct sockaddr *) &own, &len))
        check (-FI_EADDRINUSE, "listen");
      printf ("listening on port %d\n", ntohs (own.sin_port));
      fflush (stdout);
      int caller = accept (line, NULL, NULL);
      close (line);
      line = caller;
    }
  else
    {
      const struct timespec pause = { 0, 100000000 };
      for (int tries = 0; connect (line, found->ai_addr, found->ai_addrlen); tries++)
        {
          if (errno != ECONNREFUSED || tries == 600)
            check (-errno, "connect");
          nanosleep (&pause, NULL);
        }
    }
  freeaddrinfo (found);
  return line;
}

static inline void
tell (const struct node *node, const void *bytes, size_t len)
{
  if (write (node->line, bytes, len) != (ssize_t) len)
    check (-FI_EIO, "write");
}

static inline void
hear (const struct node *node, void *bytes, size_t len)
{
  for (size_t got = 0; got < len;)
    {
      ssize_t more = read (node->line, (char *) bytes + got, len - got);
      if (more <= 0)
        check (-FI_EIO, "the other process has gone");
      got += (size_t) more;
    }
}

/* Opens an endpoint with these capabilities. fi_getinfo(3) gets host, service and flags. */
static inline struct node
open_node_at (uint64_t caps, const char *host, const char *service, uint64_t flags)
{
  struct node node = { .line = -1 };
  struct fi_info *hints = fi_allocinfo ();
  hints->caps = caps;
  hints->mode = FI_CONTEXT;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR;
  if (getenv ("FI_PROVIDER") == NULL)
    hints->fabric_attr->prov_name = strdup ("unipgas");
  check (fi_getinfo (FI_VERSION (1, 9), host, service, flags, hints, &node.info), "fi_getinfo");
  fi_freeinfo (hints);
  check (fi_fabric (node.info->fabric_attr, &node.fabric, NULL), "fi_fabric");
  check (fi_domain (node.fabric, node.info, &node.domain, NULL), "fi_domain");
  struct fi_av_attr av = { .type = FI_AV_TABLE };
  check (fi_av_open (node.domain, &av, &node.av, NULL), "fi_av_open");
  struct fi_cq_attr cq = { .format = FI_CQ_FORMAT_TAGGED, .wait_obj = FI_WAIT_UNSPEC };
  check (fi_cq_open (node.domain, &cq, &node.cq, NULL), "fi_cq_open");
  check (fi_endpoint (node.domain, node.info, &node.ep, NULL), "fi_endpoint");
  check (fi_ep_bind (node.ep, &node.av->fid, 0), "fi_ep_bind");
  check (fi_ep_bind (node.ep, &node.cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
  check (fi_enable (node.ep), "fi_enable");
  return node;
}

/* The same, without host and service. */
static inline struct node
open_node (uint64_t caps)
{
  return open_node_at (caps, NULL, NULL, 0);
}

/* Opens an endpoint with these capabilities, and exchanges names with the other process. */
static inline struct node
meet (uint64_t caps, const char *host, const char *port)
{
  int line = connect_line (host, port);
  struct node node = open_node (caps);
  node.line = line;
  char name[512], theirs[512];
  size_t len = sizeof name;
  check (fi_getname (&node.ep->fid, name, &len), "fi_getname");
  tell (&node, name, len);
  hear (&node, theirs, len);
  if (fi_av_insert (node.av, theirs, 1, &node.peer, 0, NULL) != 1)
    check (-FI_EINVAL, "fi_av_insert");
  return node;
}

/* Waits for the next completion. */
static inline struct fi_cq_tagged_entry
completion (const struct node *node)
{
  struct fi_cq_tagged_entry entry;
  ssize_t got;
  while ((got = fi_cq_sread (node->cq, &entry, 1, NULL, 10000)) == -FI_EAGAIN)
    ;
  if (got == -FI_EAVAIL)
    {
      struct fi_cq_err_entry error = { 0 };
      fi_cq_readerr (node->cq, &error, 0);
      fprintf (stderr, "an operation failed: %s\n", fi_cq_strerror (node->cq, error.prov_errno, error.err_data, NULL, 0));
      exit (1);
    }
  check (got, "fi_cq_sread");
  return entry;
}

static inline void
leave (struct node *node)
{
  fi_close (&node->ep->fid);
  fi_close (&node->cq->fid);
  fi_close (&node->av->fid);
  fi_close (&node->domain->fid);
  fi_close (&node->fabric->fid);
  fi_freeinfo (node->info);
  if (node->line >= 0)
    close (node->line);
}

#endif
