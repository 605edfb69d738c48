/* Functions of libfabric in a statically linked program; elsewhere null, or a version of the function for old programs. In C, since a program
 * with whole-program optimisation may define these functions itself. There a weak reference in assembler would meet the definition. */
struct fi_info;

__attribute__((weak)) struct fi_info *fi_dupinfo(const struct fi_info *info);
__attribute__((weak)) void fi_freeinfo(struct fi_info *info);

__attribute__((visibility("hidden"))) struct fi_info *(*const unipgas_fi_dupinfo)(const struct fi_info *) = fi_dupinfo;
__attribute__((visibility("hidden"))) void (*const unipgas_fi_freeinfo)(struct fi_info *) = fi_freeinfo;
