/*
 * Makes unipgas a provider that is built into libfabric, for programs that are linked statically: those load no providers.
 *
 *     cc -static program.c builtin.c -o program -LPREFIX/lib -lunipgas -lfabric -latomic
 *
 * libfabric.a calls a function for each provider that it was built with. Debian's has some for networks whose libraries are not there as
 * archives; with the functions below those are left out, and the one for PSM, the oldest, gives unipgas instead.
 */
struct fi_provider;

/* How the provider is found where libfabric loads it. */
struct fi_provider *fi_prov_ini(void);

struct fi_provider *fi_psm_ini(void);
struct fi_provider *fi_psm2_ini(void);
struct fi_provider *fi_efa_ini(void);
struct fi_provider *fi_verbs_ini(void);

struct fi_provider *fi_psm_ini(void)
{
  return fi_prov_ini();
}

struct fi_provider *fi_psm2_ini(void)
{
  return 0;
}

struct fi_provider *fi_efa_ini(void)
{
  return 0;
}

struct fi_provider *fi_verbs_ini(void)
{
  return 0;
}
