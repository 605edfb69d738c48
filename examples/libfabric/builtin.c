/*
 * Builds unipgas into libfabric as a provider, for statically linked programs: these cannot load providers.
 *
 *     cc -static program.c builtin.c -o program -LPREFIX/lib -lunipgas -lfabric -latomic
 *
 * libfabric.a calls a function for each provider of its build. Debian's build has some providers with libraries that exist only as
 * shared objects. The functions below leave these out. The function for PSM, the oldest one, returns unipgas instead.
 */
struct fi_provider;

/* libfabric calls this function in a provider that it loads. */
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
